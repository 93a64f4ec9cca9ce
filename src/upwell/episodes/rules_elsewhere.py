"""Tells rules for the work from other sentences in Spanish, German, French and Portuguese.

As in English (`corrections`), a rule has a word for "always" or "never" beside its verb, or begins
with a phrase for "from now on", its verb is about work, and nothing in it refers to another
sentence, to one task or to the product. Words are compared without accents. The languages share
their lists. No word for "always" or "never" is an English one, so English sentences match nothing.
"""

from collections.abc import Sequence

from upwell.ground.text.words import fold, words

_FREQUENCIES = frozenset(
    "siempre nunca jamas sempre immer nie niemals stets toujours jamais".split()
)
_NEGATIONS = frozenset("no nao ne n nicht".split())
_SUBJECTS = frozenset(
    "debes deves tu usted voce du sie man vous on tienes que darfst sollst".split()
)
_LASTING = (
    *("de ahora en adelante", "a partir de ahora", "a partir de agora", "de agora em diante"),
    *("daqui em diante", "desde ahora", "ab jetzt", "ab sofort", "von nun an", "in zukunft"),
    *("kunftig", "desormais", "dorenavant", "a partir de maintenant"),
)
"""Phrases for "from now on", with which a rule begins."""
_VERBS = (
    # Spanish and Portuguese
    *("usa", "use", "usar", "utili", "ejecut", "execut", "instal", "escrib", "escrev", "edit"),
    *("borr", "elimin", "apag", "remov", "toca", "toqu", "mexa", "mexer", "modifi", "cambi"),
    *("alter", "commit", "comit", "push", "pregunt", "pergunt", "lee", "leas", "leia", "ler"),
    *("revis", "verifi", "comprueb", "comprob", "document", "import", "format", "test", "rod"),
    *("corr", "hagas", "haz", "hacer", "faca", "fazer"),
    # German
    *("verwend", "benutz", "nutz", "fuhr", "start", "schreib", "bearbeit", "ander", "losch"),
    *("merg", "frag", "lies", "lesen", "pruf", "nimm", "nehm", "anfass", "ausfuhr", "lauf"),
    # French
    *("emploi", "employ", "lanc", "ecri", "supprim", "touch", "pouss", "demand", "lis", "lire"),
    *("fais", "faire", "faites", "utilis"),
)
"""The beginnings of verbs about work."""
_ELSEWHERE = frozenset(
    """
    esto eso isso isto aquello ceci cela ca este esta estos estas esse essa ese esa cet cette ces
    dies diese dieser dieses diesen diesem hoy hoje heute aujourd manana amanha demain morgen aqui
    ahi alli ici hier dort anterior anteriores siguiente seguinte suivant suivante nachste nachsten
    vorher oben unten arriba abajo acima abaixo luego depois todavia ainda noch wieder otra outra
    autre andere anderen
    """.split()
)
"""Words that refer to another sentence, to one task or to one moment."""
_HERE = (
    *("en este repo", "en este repositorio", "en este proyecto", "neste repo", "neste repositorio"),
    *("neste projeto", "in diesem repo", "in diesem repository", "in diesem projekt"),
    *("dans ce depot", "dans ce repo", "dans ce projet"),
)
_PRODUCT = frozenset(
    """
    boton botones color colores columna columnas fila filas pantalla usuario usuarios cliente
    clientes icono titulo etiqueta botao botoes cor cores coluna colunas linha linhas tela usuarios
    icone titulo etiqueta knopf farbe farben spalte spalten zeile zeilen nutzer benutzer kunde
    kunden symbol titel bouton boutons couleur couleurs colonne colonnes ligne lignes ecran
    utilisateur utilisateurs client clients icone titre menu
    """.split()
)
MAX_BETWEEN = 2
"""How many words may stand between the verb and the word for "always"."""
MAX_GERMAN = 8
"""In German, the verb may end the sentence: "Niemals direkt auf main pushen"."""
_GERMAN = frozenset("immer nie niemals stets".split())


def is_rule(sentence: str) -> bool:
    """Return whether a sentence in one of these languages is a rule for the work."""
    text = f" {' '.join(word for part in words(fold(sentence)) for word in part.split(chr(39)))} "
    for here in _HERE:
        text = text.replace(f" {here} ", " ")
    lasting = next((each for each in _LASTING if text.startswith(f" {each} ")), "")
    own = text.removeprefix(f" {lasting}").split()
    if not _ELSEWHERE.isdisjoint(own) or not _PRODUCT.isdisjoint(own):
        return False
    start = next((n for n, word in enumerate(own) if word not in _SUBJECTS | _NEGATIONS), 0)
    return _is_order(own[start:], is_lasting=bool(lasting))


def _is_order(own: Sequence[str], *, is_lasting: bool) -> bool:
    if not own:
        return False
    verbs = [place for place, word in enumerate(own) if word.startswith(_VERBS)]
    if is_lasting:
        return bool(verbs) and verbs[0] <= MAX_GERMAN
    if own[0] in _FREQUENCIES:
        reach = MAX_GERMAN if own[0] in _GERMAN else 1
        return bool(verbs) and verbs[0] <= reach
    near = own[1 : MAX_BETWEEN + 2]
    return verbs[:1] == [0] and not _FREQUENCIES.isdisjoint(near)
