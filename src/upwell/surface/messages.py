"""What to look for when somebody says something (seed 003): is it worth looking, and for what.

Up to three queries: the message itself, its keywords, and the names in it.
"""

import re

from upwell.ground.text.words import STOP_WORDS, fold, informative, words

MAX_ORIGINAL_CHARS = 500
MAX_KEYWORDS = 5
MAX_READ_CHARS = 4000
MIN_WORDS = 3

_SLASH = re.compile(r"^/[A-Za-z][\w:-]*(?:\s|$)")
_QUESTION_MARKS = "?？؟"
_GREETINGS = frozenset(
    fold(word)
    for word in (
        "hola,hello,hi,hey,buenas,buenos días,buenas tardes,buenas noches,good morning,"
        "good afternoon,good evening,good night,yo,sup,hello there,hi there,hey there,"
        "qué tal,hola qué tal,how are you,how are you doing,cómo estás,bye,goodbye,adiós,"
        "hasta luego,see you,see you later,see you tomorrow,cheers"
    ).split(",")
)
_ACKNOWLEDGEMENTS = frozenset(
    fold(word)
    for word in (
        "ok,okay,k,yes,no,nope,yep,yeah,yup,sure,sí,si,vale,claro,de acuerdo,perfecto,perfect,"
        "great,nice,cool,awesome,excellent,good,fine,right,correct,exactly,got it,understood,"
        "thanks,thank you,thx,ty,thanks a lot,thank you so much,thank you very much,many thanks,"
        "gracias,muchas gracias,muchas gracias por todo,mil gracias,sounds good,looks good,"
        "looks good to me,lgtm,well done,good job,great job,go ahead,go on,continue,proceed,"
        "please continue,carry on,keep going,do it,yes please,no thanks,never mind,that works,"
        "works for me,makes sense,i see,all good,done,next,stop,wait,again,try again,retry,"
        "continúa,sigue,adelante,listo,hecho,bien,muy bien,genial,entendido"
    ).split(",")
)
_EDGES = re.compile(r"^[^\w]+|[^\w]+$")
_NOT_NAMES = frozenset(
    fold(word)
    for word in (
        "i el la los las un una unos unas a an the qué que quién quien cuándo cuando dónde donde "
        "cómo como cuál cual por what who when where how which why whose sugiere dime recuérdame "
        "cuéntame dame muestra tell show give find get make let remember is are was were do does "
        "did can could should would will has have had please ok okay yes no"
    ).split()
)
_MAX_ACRONYM = 10


def not_applicable(message: str) -> str:
    """Why a message needs no look at memory, or "" when it may."""
    text = message[:MAX_READ_CHARS].strip()
    if not text:
        return "empty message"
    if _SLASH.match(text):
        return "slash command"
    bare = " ".join(fold(text).strip(" .,;:!¡¿?…👍👋🙏").split())
    bare = re.sub(r"[,.!]", "", bare)
    if not bare or bare in _GREETINGS:
        return "greeting"
    if bare in _ACKNOWLEDGEMENTS:
        return "acknowledgement"
    count = len(words(text[:MAX_ORIGINAL_CHARS]))
    if count < MIN_WORDS and not any(mark in text for mark in _QUESTION_MARKS):
        return f"{count} words and no question"
    return ""


def derive_queries(message: str) -> tuple[str, ...]:
    """Up to three queries: original, keywords, persona; those that say the same are left out."""
    original = message[:MAX_READ_CHARS].strip()[:MAX_ORIGINAL_CHARS]
    persona = names(original)
    keywords = _keywords(original, persona)
    found = [original] if original else []
    if keywords and keywords != original.lower():
        found.append(keywords)
    if persona and (joined := " ".join(persona)) not in found:
        found.append(joined)
    return tuple(found)


def _keywords(message: str, persona: list[str]) -> str:
    taken = {fold(name) for name in persona}
    kept: dict[str, None] = {}
    for word in words(message):
        lower = word.lower()
        if fold(lower) not in taken and informative([fold(lower)]):
            kept.setdefault(lower)
    return " ".join(list(kept)[:MAX_KEYWORDS])


def names(message: str) -> list[str]:
    """Words that look like names: a capital first, or a short word all in capitals."""
    found: dict[str, None] = {}
    for token in message.split():
        name = _EDGES.sub("", token).removesuffix("'s").removesuffix("’s")
        if not name or not name[0].isupper() or fold(name) in _NOT_NAMES:
            continue
        if name.lower() in STOP_WORDS and not name.isupper():
            continue
        if name.isupper() and not 2 <= len(name) <= _MAX_ACRONYM:
            continue
        found.setdefault(name)
    return list(found)
