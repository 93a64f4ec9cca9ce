"""Recognises texts that give a reason."""

import re

_REASON = re.compile(
    r"\b(?:because|so that|since|instead of|otherwise|to avoid|avoids?|prevents?|must|never|"
    r"workaround|work around|regression|root cause|race|deadlock|breaks?|broke|revert|too slow|"
    r"compatib\w+|security|fails? (?:when|if|on)|on purpose|deliberately|decided|due to|"
    r"hence|therefore|which is why|that is why|as a result)\b|"
    r"[,;] (?:and )?so (?!far\b|on\b|forth\b|long\b|what\b|please\b)\w+(?: \w+){2}",
    re.IGNORECASE,
)


def gives_reasons(text: str) -> bool:
    """True if the text gives a reason."""
    return bool(_REASON.search(text))
