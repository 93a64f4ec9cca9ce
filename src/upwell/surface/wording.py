"""Tells from its first words whether a prompt asks something or contradicts the agent, in English,
Spanish, German, French and Portuguese.

A prompt in one language is read by the patterns of all. So a word that also begins English
sentences counts only together with words that follow it there: `comment faire`, but not `comment
out`; `non, …`, but not `non-blocking`.

Reduces the paths, URLs, command lines and searches in a tool call to the words that identify
what the call is about.

Parts that most paths, URLs and commands share are left out, because they would match everywhere.
"""

import re
import shlex
from collections.abc import Iterator
from functools import lru_cache
from urllib.parse import unquote, urlsplit

from upwell.ground.text.anchors import PROJECT_FILES, file_stem, path_parts, relative_to
from upwell.ground.text.lexicon import Lexicon, shipped
from upwell.ground.text.words import path_words

MAX_VALUE_CHARS = 400
MAX_COMMAND_CHARS = 2_000
_HOMES = frozenset({"home", "users"})
_FORGES = ("github.", "gitlab.", "bitbucket.", "codeberg.", "gitea.", "raw.githubusercontent.")
_ADDRESS_NOISE = frozenset(
    """
    www com org net io dev html htm php aspx blob tree raw issues issue pull pulls wiki commit
    commits releases discussions en latest stable api v1 v2 v3 http https
    """.split()
)
_URL = re.compile(r"[a-z][a-z0-9+.-]{1,20}://\S+", re.IGNORECASE)
_QUALIFIER = re.compile(
    r"(?<!\S)-?(?:repo|org|user|owner|author|language|lang|is|in|type|state|label|sort|created|"
    r"updated|extension|size|stars|fork|archived|no|involves|assignee|milestone|base|head):\S+"
)
_PLACE_QUALIFIER = re.compile(r"(?<!\S)(?:path|file|filename):(?=\S)")
_PATH_SHAPED = re.compile(r"^~?/?[\w.@+-]+(?:[\\/][\w.@+-]*)*$")
_ASSIGNMENT = re.compile(r"^[A-Za-z_]\w*=")
_OPERATORS = re.compile(r"[|&;<>()`]+|\$\(|\d?>&?\d?")
_NUMBER = re.compile(r"^[\d.,:/+-]+$")
_REGEX_SIGNS = re.compile(r"\\[bBdDsSwW<>]|[\\^$*+?()\[\]{}|]")


class Speech:
    """Turns arguments into words, leaving out those that the lexicon lists as `boilerplate` or
    `commands`."""

    def __init__(self, lexicon: Lexicon) -> None:
        self._boilerplate = lexicon.boilerplate | _ADDRESS_NOISE
        self._path_noise = lexicon.boilerplate
        self._commands = lexicon.commands

    def path(self, path: str, root: str | None = None) -> str:
        """The informative words of a path. Leaves out the extension, boilerplate words, and file
        names that every project has. With `root`, only the part below `root` is used."""
        parts = path_parts(_below(path, root))
        if parts and file_stem(path).lstrip(".") in PROJECT_FILES | {"gitignore"}:
            parts.pop()
        words = path_words("/".join(parts)) if parts else []
        return " ".join(word for word in words if word not in self._path_noise)

    def address(self, url: str) -> str:
        """The informative words of a URL. On a forge (GitHub, GitLab …), only the part after the
        repository is used."""
        try:
            parts = urlsplit(url)
            host = (parts.hostname or "").lower()
        except ValueError:
            return ""
        segments = [part for part in unquote(parts.path).split("/") if part]
        if host.startswith(_FORGES):
            host, segments = "", segments[2:]
        words = [*host.split("."), *path_words("/".join(segments))]
        return " ".join(w for w in words if w and w not in self._boilerplate and not w.isdigit())

    def command(self, line: str, root: str | None = None) -> str:
        """The informative words of a command line, without options and common commands."""
        texts = []
        for word in _shell_words(line[:MAX_COMMAND_CHARS]):
            if word.startswith("-") or _ASSIGNMENT.match(word) or _NUMBER.match(word):
                continue
            if word.lower().strip("/.") in self._commands | self._path_noise:
                continue
            texts.append(self.value(_REGEX_SIGNS.sub(" ", word).strip(), root))
        return " ".join(filter(None, texts))

    def value(self, text: str, root: str | None = None) -> str:
        """The words of any argument, with URLs and paths reduced and search qualifiers removed."""
        text = _PLACE_QUALIFIER.sub("", _QUALIFIER.sub(" ", text[:MAX_COMMAND_CHARS]))
        text = _URL.sub(lambda url: self.address(url.group()), text)
        words = (
            self.path(word, root) if "/" in word and _PATH_SHAPED.match(word) else word
            for word in text.split()
        )
        return " ".join(filter(None, words))


@lru_cache(maxsize=4)
def speech_of(lexicon: Lexicon | None = None) -> Speech:
    """The `Speech` for a lexicon (by default the shipped one), built once."""
    return Speech(lexicon or shipped())


def _below(path: str, root: str | None) -> str:
    """`path` relative to `root`. Without a root, removes a leading home folder (`/home/NAME`) and
    the folder below it, but keeps a file directly in the home folder."""
    parts = path_parts(relative_to(path, root))
    if root is None and path.startswith("/") and parts and parts[0].lower() in _HOMES:
        in_home = len(parts) == 3 and "." in parts[2]
        parts = parts[2:] if in_home else parts[3:]
    return "/".join(parts)


def _shell_words(line: str) -> Iterator[str]:
    """The unquoted words of a command line. A line that cannot be parsed is split at spaces."""
    bare = line.replace("\n", " ; ")
    try:
        lexer = shlex.shlex(bare, posix=True, punctuation_chars="|&;<>()`")
        lexer.whitespace_split = True
        lexer.commenters = ""
        words = list(lexer)
    except ValueError:
        words = bare.replace('"', " ").replace("'", " ").split()
    for word in words:
        if not _OPERATORS.fullmatch(word):
            yield from word.split()


_START = r"^\W{0,3}"
LED = (
    r"(?:(?:also|and|ok|okay|so|but|now|then|well|hmm?|hey|hi|hello|btw|by the way|actually|oh|"
    r"alright|all right|right|great|thanks|thank you|cool|good|nice|perfect|yes|yeah|yep|wait|"
    r"sorry|again|next|quick question|one more (?:thing|question)|"
    r"y|pero|entonces|ahora|bueno|vale|oye|además|también|por cierto|perfecto|gracias|"
    r"und|aber|dann|gut|ja|danke|übrigens|et|mais|alors|bon|donc|sinon|d['’]accord|merci|"
    r"e|mas|então|agora|bem|também|aliás|obrigad[oa])\W{1,3}){1,4}"
)
"""Words that lead over to a question, as in "ok, so where is …"."""
_QUESTION = re.compile(
    rf"{_START}(?:why|how|where|what|which|who|when|is|are|does|do|did|can|could|should|was|were)\b",
    re.IGNORECASE,
)
_LED_QUESTION = re.compile(
    rf"{_START}{LED}(?:why|whose|who(?! knows)|"
    r"(?:how|where|what|which)\b(?! (?:i|we|you|they|it|means|possible|needed|necessary|an?)\b)|"
    r"(?:when|why) (?:is|are|was|were|do|does|did|will|can|should)|"
    r"(?:is|are|does|did|was|were) (?:i|we|you|they|it|there|this|that|these|those|the|an?|any|"
    r"my|our|your|all)|(?:can|could|should|do) (?:i|it|there|this|that|they|these|those))\b",
    re.IGNORECASE,
)
"""An imperative ("and do the same"), a request ("ok, can you …") and a clause ("and where possible,
use …") are no questions."""
_QUESTION_ELSEWHERE = re.compile(
    rf"{_START}(?:{LED})?(?:"
    r"cómo|por qu[eéê]|qué|cuál(?:es)?|dónde|adónde|cuándo|quién(?:es)?|cuánt[oa]s?|"
    r"como (?:se|puedo|hago|hacemos|podemos|es|está|esta|funciona|era|eu|faço|faz|fazer|posso|é|"
    r"fica|rodo|uso|a gente)|donde (?:está|esta|están|estan|se|hay|puedo|tengo|va)|"
    r"cual (?:es|era|sería)|que (?:es|hace|pasa|pasó|significa|hay)|hay (?:alguna?|forma|manera)|"
    r"se puede|sabes (?:si|cómo|como|dónde|donde)|"
    r"warum|wieso|weshalb|wohin|woher|womit|wofür|wozu|wann|welche[rsnm]?|"
    r"(?:wie|wo|wer|was) (?:ist|sind|war|hat|haben|habe|heißt|macht|mache|bedeutet|passiert|muss|"
    r"soll|sollen|kann|können|geht|läuft|liegt|finde|wird|werden|viele?|oft|lange|startet|"
    r"starte)|(?:gibt|ist|kann|können|muss|müssen|soll|sollen|läuft|geht|funktioniert) "
    r"(?:es|das|der|man|ich|wir|ein|eine)|"
    r"pourquoi|où|combien|quel(?:le)?s?|qu['’]est-ce|est-ce|c['’]est (?:quoi|où)|ou est|"
    r"comment (?:faire|fait|fonctionne|est|sont|puis|peut|peux|je|tu|nous|vous|se|ça|utiliser|"
    r"lancer|on (?:fait|peut|lance|utilise|configure))|y a-t-il|peut-on|faut-il|"
    r"qual|quais|onde|quem|o que (?:é|faz|acontece|significa|há|tem)|tem (?:como|algum)|"
    r"dá (?:para|pra)|é possível|quando (?:é|foi|vamos)"
    r")(?!\w)",
    re.IGNORECASE,
)
_CORRECTION = re.compile(
    rf"{_START}(?:no[,. ]|wrong\b|stop\b|don'?t\b|do not\b|never\b|always\b|instead\b|not what\b|"
    r"that'?s (?:not|wrong)|why (?:did|are|do|didn'?t|aren'?t|don'?t) you\b|as i said\b|"
    r"i (?:said|asked|told)\b|you (?:should|forgot|were supposed)\b|just (?:use|run)\b)",
    re.IGNORECASE,
)
_CORRECTION_ELSEWHERE = re.compile(
    rf"{_START}(?:"
    r"siempre|nunca|jamás|eso no|así no|está mal|(?:ya )?te (?:dije|pedí|he dicho)|ya dije|"
    r"en (?:vez|lugar) de|deberías|te olvidaste|olvidaste|mejor usa|"
    r"nein|falsch|stopp|nicht (?:so|das)|so nicht|bitte nicht|niemals|nie|"
    r"immer(?! (?:noch|wieder|mehr))|stattdessen|das (?:ist|war) (?:falsch|nicht)|"
    r"ich (?:habe|hatte|hab) (?:doch |dir )?(?:gesagt|gebeten)|ich sagte|wie gesagt|"
    r"du (?:solltest|sollst|hast vergessen)|warum (?:hast|machst|nimmst|benutzt) du|"
    r"nimm (?:lieber|stattdessen)|"
    r"non(?=[,.!;:])|non (?:pas|c['’]est|ce|il|tu|je|ne|utilise|prends)|arrête|jamais|"
    r"toujours(?! (?:pas|en|le|la|les)\b)|c['’]est (?:faux|pas)|ce n['’]est pas|"
    r"pas (?:ça|comme ça)|je (?:t['’]ai|vous ai) (?:dit|demandé)|"
    r"tu (?:devais|aurais dû|as oublié)|ne \w{2,20} (?:pas|jamais)|n['’]\w{2,20} (?:pas|jamais)|"
    r"au lieu de|plutôt|"
    r"n[ãa]o(?=[,.!;:])|não (?:use|usa|faça|mexa|toque|crie|altere|rode|era|é (?:isso|assim))|"
    r"sempre|errado|está errado|pare de|(?:eu|já) (?:te )?(?:disse|falei|pedi)|"
    r"você (?:deveria|devia|esqueceu)|em vez de|ao invés de"
    r")(?!\w)",
    re.IGNORECASE,
)


def is_question(text: str) -> bool:
    """True if a prompt is phrased as a question."""
    patterns = (_QUESTION, _LED_QUESTION, _QUESTION_ELSEWHERE)
    return "?" in text or any(pattern.match(text) for pattern in patterns)


def is_correction(text: str) -> bool:
    """True if a prompt begins by contradicting the agent."""
    return any(pattern.match(text) for pattern in (_CORRECTION, _CORRECTION_ELSEWHERE))
