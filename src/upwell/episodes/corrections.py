"""Finds a user's rules for the work, such as "never use grep on JSON, use jq".

Most sentences with "always" or "don't" are not rules. They are orders for one task, or they
describe the product ("always show the last row"). A rule is a complete sentence about the agent's
own work. It has one of the usual forms of rules, its verb is about work, and nothing in it refers
to another sentence, to one task or to one moment.

In Spanish, German, French and Portuguese, a rule has a word for "always" or "never" beside its
verb, or begins with a phrase for "from now on". Words are compared without accents. The languages
share their lists. No word for "always" or "never" is an English one, so English sentences match
nothing there.
"""

import re
from collections.abc import Iterator, Sequence

from upwell.episodes.events import SessionEvent
from upwell.episodes.triggers import Episode, EpisodeKind
from upwell.ground.text.words import fold, words

MAX_MESSAGE_CHARS = 1_000
MAX_MESSAGE_LINES = 15
"""A message with more lines than this is assumed to be pasted text or a plan."""
MAX_RULE_WORDS = 40
_WORK_VERBS = frozenset(
    """
    amend ask assume build bypass change check claim close code commit delete disable document
    duplicate edit execute explain fix follow force format generate git grep guess hardcode
    hard-code ignore implement import install invoke lint mark merge mock modify name open prefer
    proceed pull push read rebase refactor rely remove reuse re-use revert review run search skip
    squash stop summarise summarize tell test touch try use verify work write
    """.split()
)
_COMMON_VERBS = frozenset(
    """
    add answer call copy create declare define do handle include keep leave log make move pass
    print provide put rename replace reply respond return save set start store update upgrade wrap
    """.split()
)
"""Verbs that are used for both the work and the product. A rule with such a verb needs another word
about the work.
"""
_PRODUCT_VERBS = frozenset(
    """
    accept align allow animate appear are be center centre contain default enable expect fails fall
    fill freeze get gets happen has have hide highlight is load mind refresh reject render require
    reset saw scroll see select show sort stretch support toggle works display
    """.split()
)
"""Verbs in sentences that describe the product ("always show …") or say what happened."""
_WORK_NOUNS = """
    agent agents approval assumption assumptions branch branches build changelog class classes code
    codebase command commands comment comments commit commits credentials dependencies dependency
    doc docs docstring docstrings documentation environment error errors exception exceptions
    fallback fallbacks file files function functions hack hacks import imports interface interfaces
    issue issues lint linter migration migrations mock mocks module modules package packages
    permission plan pr prs readme repo repository rule rules script scripts secret secrets shell
    spec specs task tasks terminal test tests ticket tickets todo todos type types variable
    variables venv workaround workarounds workspace
"""
_PRODUCT_NOUNS = """
    axes axis bot button buttons card cards chart charts color colors colour colours column columns
    customer customers dropdown dropdowns font fonts graph graphs header headers icon icons image
    images label labels layout layouts legend legends menu menus message messages modal modals page
    pages panel panels player players popup popups row rows screen screens tab table tables tabs
    team teams tooltip tooltips user users widget widgets
"""
_ELSEWHERE_WORDS = """
    above again another below both currently former he her here him its latter next now one ones
    option other others phase previous she stage step still such their them these they this
    those today tomorrow yesterday yet
"""


def _any_word(words: str) -> str:
    return rf"\b(?:{'|'.join(words.split())})\b"


def _no_word_before(words: str) -> str:
    return "".join(rf"(?<!\b{word})" for word in words.split())


_LEAD = re.compile(
    r"^(?:(?:no+|nope|ok(?:ay)?|ye[sp]|yeah|yea|also|and|but|so|again|please|pls|btw|by the way|"
    r"remember|note|important|reminder|hey|well|actually|then|once more|(?:as|like) i said|"
    r"i (?:already )?(?:said|told you)|(?:in|on|for) this (?:repo|repository|project|codebase)|"
    r"nein|n[ãa]o(?=,)|non(?=,)|por favor|bitte|s['’]il te pla[iî]t|recuerda|lembre-se|"
    r"rappelle-toi|denk daran|vale|bueno|oye|además|también|também|außerdem|aussi|"
    r"(?:thanks|thank you|great|perfect|good)(?=[,:;.!]|\s[–—-]))\b"
    r"[\s,:;.!–—-]*)+",
    re.IGNORECASE,
)
_OF_WORK = re.compile(
    r"`[^`]+`|\b[\w-]{1,80}\.(?:md|mdc|py|ts|tsx|js|jsx|go|rs|json|ya?ml|toml|sh|sql)\b|"
    + _any_word(_WORK_NOUNS),
    re.IGNORECASE,
)
_OF_PRODUCT = re.compile(_any_word(_PRODUCT_NOUNS), re.IGNORECASE)
_FREQUENCY = r"(?:always|never(?: ever)?|(?:do not|don'?t) ever|must not|must never)"
_VERB = r"(?P<verb>`|[a-z]++(?:-[a-z]++)*+)"
_CONDITION = (
    r"\b(?:ever|unless|by hand|manually|directly|until i (?:say|ask|tell|confirm|approve)|"
    r"without (?:asking|my|permission|approval|explicit|first|telling|checking))"
)
_FORMS = tuple(
    re.compile(form, re.IGNORECASE)
    for form in (
        rf"^(?:you |we |agents? )?(?:must |should |need to |have to )?{_FREQUENCY} (?:be )?{_VERB}",
        rf"^(?:make sure|be sure|ensure|try) (?:that )?(?:you |to |we )?{_FREQUENCY} {_VERB}",
        rf"^you (?:should not|shouldn'?t) (?:ever )?(?:be )?{_VERB}",
        r"^(?:when(?:ever)?|before|after|every time|each time|if) (?:you|we|[a-z]+ing)\b"
        rf"[^,]{{3,120}}, (?:then )?(?:you |we )?(?:must |should )?{_FREQUENCY} {_VERB}",
        rf"^(?:you (?:must|should|may|can)|we)? ?(?:do not|don'?t|not|must not|may not) {_VERB}\b"
        rf".*{_CONDITION}",
        r"^(?:from now on|going forward),? (?:please )?(?:you (?:must |should )?)?"
        rf"(?:{_FREQUENCY} |do not |don'?t |only )?{_VERB}",
        rf"^{_VERB}\b.*\b(?:from now on|going forward)$",
    )
)
"""The forms that rules have. The group `verb` matches the verb."""
_CHOICE = re.compile(
    r"^(?:(?:you|we) (?:must |should |have to |need to )?)?(?:use|prefer) [^,]{1,60},? "
    r"(?:and |but )?(?:not|never|instead of|rather than) \S",
    re.IGNORECASE,
)
"""One means instead of another, which is a rule only if it is said of the whole repository."""
_DETAIL = re.compile(r": (?=[^:]{3,60}$)")
"""What comes before a last detail, as in "always migrate before the tests: make migrate"."""
_ORDER = re.compile(rf"^{_FREQUENCY} [a-z]", re.IGNORECASE)
_LASTING = re.compile(r"\b(?:from now on|going forward)\b", re.IGNORECASE)
_QUOTED = re.compile(r"`[^`]*`|\"[^\"]*\"|(?<!\w)'[^']*'(?!\w)|“[^“”]*”|@[\w./-]+")
_EXPLAINED = r"(?! (?:\w+ ){1,3}(?:that|as)\b)"
_ELSEWHERE = re.compile(
    "|".join(
        (
            _any_word(_ELSEWHERE_WORDS),
            r"\bit\b(?! (?:is|seems|looks) (?:obvious|clear|possible|necessary|needed))",
            rf"\bsame\b{_EXPLAINED}",
            r"\binstead\b(?! of\b)|\bfor now\b|\bso far\b",
            r"\bthere\b(?! (?:is|are)\b)|\bthat(?=[.,;!?]|$)",
            r"\bthe (?:first|second|third|last|new|old|following)\b",
            r"\byou (?:just|already|did|said|were|have|had|made|added|removed|changed)\b",
            r"[:?…;]|\.\.|https?://|#\d|\b[0-9a-f]{7,}\b|\d{4,}|\be\.?g\b|\bi\.?e\b",
            r"^\W*(?:and|or|but|because)\b",
        )
    ),
    re.IGNORECASE,
)
"""Words that refer to another sentence, to one task or to one moment."""
_HERE = re.compile(
    rf"{_no_word_before('and as but except is like not only or than')}"
    r" (?:in|on|for) this (?:repo|repository|project|codebase)\b(?![\w'’-])",
    re.IGNORECASE,
)
_HERE_AT_END = re.compile(
    r"(?<!ed)(?<!en)(?<!built)(?<!done)(?<!found)(?<!kept)(?<!made)"
    rf"{_HERE.pattern}(?=[,.!]|$)",
    re.IGNORECASE,
)
"""Two patterns for "in this repository" and the like. `_HERE` matches these words anywhere; they
are ignored when a sentence is judged. `_HERE_AT_END` matches them at the end of a clause. There
they are removed, because every rule belongs to a project anyway. After a participle, the words are
kept ("the names used in this repository").
"""
_BARE_VERB = re.compile(
    r"\b(?:always|be|don'?t|ever|forward|must|never|not|on|only|should|to) [\w-]+$", re.IGNORECASE
)
_REASON = re.compile(
    r", (?:(?:as|because|since) )?(?:it|they)(?:['’](?:s|re)| (?:is|are|was|were|has|have|will|"
    r"would|breaks?|causes?|comes?|costs?|fails?|gets?|hides?|leaks?|makes?|slows?|takes?))\b"
    r"(?P<reason>[^,]*)$",
    re.IGNORECASE,
)
"""A last clause that gives the reason for the rule, as in "…, it breaks the build"."""
_LIMIT = re.compile(
    _any_word(
        "about after already before change draft except fine fix for if in just ok okay only once "
        "prototype spike task temporary unless until when while"
    ),
    re.IGNORECASE,
)
"""A last clause with one of these words limits the rule, or is about the task."""
_PLACES = re.compile(
    r"\b(?:in|under|inside|within|below)\s+`?((?:[\w.-]+/)+(?=[\s`.,]|$)|[\w./-]*\*[\w./*-]*\w)"
)
"""A folder with a trailing slash, or a glob."""
_PAIRS = (("(", ")"), ("[", "]"), ("“", "”"))


def rules_of(prompt: SessionEvent) -> Iterator[Episode]:
    """Yield the rules in a user's prompt."""
    for rule in rules_in(prompt.text):
        # The files to which the rule is restricted.
        globs = (match[1] for match in _PLACES.finditer(rule))
        yield Episode(
            kind=EpisodeKind.RULE,
            text=rule,
            triggers=(),
            paths=tuple(f"{glob}**" if glob.endswith("/") else glob for glob in globs),
            cwd=prompt.cwd,
            session=prompt.session,
            at=prompt.t,
            evidence=(prompt.i,),
        )


def rules_in(message: str) -> Iterator[str]:
    """Yield the sentences of a user's message that are rules for the work."""
    if len(message) > MAX_MESSAGE_CHARS or message.count("\n") >= MAX_MESSAGE_LINES:
        return
    for sentence in sentences(message):
        rule = _LEAD.sub("", sentence)
        for text in dict.fromkeys((rule, _without_reason(rule))):
            bare = _DETAIL.sub(", ", _HERE.sub("", text))
            is_choice = _HERE.search(text) and _CHOICE.match(bare)
            if _is_whole(bare) and (is_choice or _is_rule(bare)):
                finished = _HERE_AT_END.sub(_here_needed, text).rstrip(" .!,;") + "."
                yield finished[:1].upper() + finished[1:]
                break


def _here_needed(here: re.Match[str]) -> str:
    """Keep "in this repository" directly after the verb, as in "never push in this repository"."""
    return here[0] if _BARE_VERB.search(here.string[: here.start()]) else ""


def _without_reason(rule: str) -> str:
    """Remove the last clause if it gives the reason. A clause that refers to another sentence, or
    that limits the rule, is kept."""
    match = _REASON.search(rule.rstrip(" .!"))
    if match is None or _ELSEWHERE.search(match["reason"]) or _LIMIT.search(match["reason"]):
        return rule
    return rule[: match.start()]


def _is_whole(rule: str) -> bool:
    """Return whether the sentence makes sense on its own."""
    words = rule.split()
    bare = _QUOTED.sub("X", _LASTING.sub("", rule)).strip()
    return (
        4 <= len(words) <= MAX_RULE_WORDS
        and not _ELSEWHERE.search(bare)
        and not set(bare) & set('`"“”')
        and all(rule.count(left) == rule.count(right) for left, right in _PAIRS)
    )


def _is_rule(rule: str) -> bool:
    if _is_foreign_rule(rule):
        return True
    plain = rule.rstrip(" .!")
    matches = (form.search(plain) for form in _FORMS)
    return any(match is not None and _is_of_work(match["verb"].lower(), rule) for match in matches)


def _is_of_work(verb: str, rule: str) -> bool:
    if _OF_PRODUCT.search(rule) and not _OF_WORK.search(rule):
        return False
    bases = {verb, *(verb.removesuffix(end) for end in ("ing", "ting", "ning"))}
    bases |= {f"{base}e" for base in bases}
    if verb == "`" or bases & _WORK_VERBS:
        return True
    in_work = _OF_WORK.search(rule) and not _OF_PRODUCT.search(rule)
    if bases & _COMMON_VERBS:
        return bool(in_work)
    return bool(_ORDER.match(rule)) and not bases & _PRODUCT_VERBS


MIN_CHARS, MAX_CHARS, MIN_WORDS = 20, 400, 5
"""Sentences that are shorter or longer than this are ignored."""
MIN_WRAPPED_CHARS = 60
"""A line of at least this length counts as wrapped if it ends within a sentence."""
_SENTENCE = re.compile(r"(?<=[.!?])\s+|\n+")
_MARKS = re.compile(r"^[\s*#\-–•\d.)]+|(?<!/)[*_`]{2,}(?!/)")
_OPENING = re.compile(r"```|<[a-z-]{1,60}>")
_CLOSING_FENCE = re.compile(r"```")
_CLOSING_TAG = re.compile(r"</[a-z-]{1,60}>")


def sentences(text: str) -> Iterator[str]:
    """Yield the sentences of a text. Code, quoted lines and fragments are left out."""
    own = "\n".join(line for line in text.splitlines() if not line.lstrip().startswith(">"))
    for part in _SENTENCE.split(_joined(_without_code(own))):
        sentence = " ".join(_MARKS.sub("", part).split())
        if MIN_CHARS <= len(sentence) <= MAX_CHARS and len(sentence.split()) >= MIN_WORDS:
            yield sentence


def _joined(text: str) -> str:
    """Join wrapped lines."""
    lines: list[str] = []
    for line in text.splitlines():
        before = lines[-1] if lines else ""
        is_open = len(before) >= MIN_WRAPPED_CHARS and before.rstrip()[-1:] not in ".!?:;"
        if is_open and line[:1].islower():
            lines[-1] = f"{before} {line}"
        else:
            lines.append(line)
    return "\n".join(lines)


def _without_code(text: str) -> str:
    """Remove fenced code and the contents of tags. If a tag is never closed, all text up to the
    next fence is kept, because searching for the end of every later tag would take quadratic time.
    """
    parts, at = [], 0
    while match := _OPENING.search(text, at):
        is_fence = match[0] == "```"
        closing = _CLOSING_FENCE if is_fence else _CLOSING_TAG
        end = closing.search(text, match.end())
        if end is None and not is_fence:
            fence = text.find("```", at)
            if fence < 0:
                break
            end = _CLOSING_FENCE.search(text, fence + 3)
            parts.append(text[at:fence])
        else:
            parts.append(text[at : match.start()])
        at = end.end() if end else len(text)
    return "\n".join([*parts, text[at:]])


_FREQUENCIES = frozenset(
    "siempre nunca jamas sempre immer nie niemals stets toujours jamais".split()
)
_NEGATIONS = frozenset("no nao ne n nicht".split())
_SUBJECTS = frozenset(
    "debes deves tu usted voce du sie man vous on tienes que darfst sollst".split()
)
_LASTING_PHRASES = (
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
_ELSEWHERE_PHRASES = frozenset(
    """
    esto eso isso isto aquello ceci cela ca este esta estos estas esse essa ese esa cet cette ces
    dies diese dieser dieses diesen diesem hoy hoje heute aujourd manana amanha demain morgen aqui
    ahi alli ici hier dort anterior anteriores siguiente seguinte suivant suivante nachste nachsten
    vorher oben unten arriba abajo acima abaixo luego depois todavia ainda noch wieder otra outra
    autre andere anderen
    """.split()
)
"""Words that refer to another sentence, to one task or to one moment."""
_HERE_PHRASES = (
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


def _is_foreign_rule(sentence: str) -> bool:
    """Return whether a sentence in Spanish, German, French or Portuguese is a rule for the work."""
    text = f" {' '.join(word for part in words(fold(sentence)) for word in part.split(chr(39)))} "
    for here in _HERE_PHRASES:
        text = text.replace(f" {here} ", " ")
    lasting = next((each for each in _LASTING_PHRASES if text.startswith(f" {each} ")), "")
    own = text.removeprefix(f" {lasting}").split()
    if not _ELSEWHERE_PHRASES.isdisjoint(own) or not _PRODUCT.isdisjoint(own):
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
