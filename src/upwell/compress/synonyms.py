"""Synonyms that link the words in questions to the keys in tool responses.

Each line of `_GROUPS` is a group of words. A question that contains one of them also finds the
others, with a lower weight. The groups cover the subjects of tool responses (time, size, place,
people, state, machines, code). Only an embedder finds other synonyms.
"""

from functools import lru_cache

_GROUPS = """
when date time timestamp created updated published at released landed
created creation made born started opened creat
updated modified changed edited last touched
deleted removed dropped destroyed erased thrown
closed finished ended completed done resolved
duration took elapsed seconds long runtime finished in time need
size bytes length big large weight kb mb content-length
count total number many amount quantity sum
limit max maximum cap ceiling quota most
min minimum least floor
memory ram heap allocatable
disk storage volume filesystem drive ebs
cpu core processor vcpu
machine host node server instance vm box
network subnet vpc nic eni interface card
address ip addr endpoint
port listen socket
url link href uri page website homepage site
path route file location directory folder where filename
name title label called named display
description summary about explains purpose doc does
owner author user login creator maintainer who assignee writer person people reporter reported
member team group organization org company
email mail contact
key id identifier secret kms arn code
token credential password secret auth authentication
encrypted encryption cipher tls ssl security
permission role policy access allowed grant privilege acl
status state phase condition health healthy
active enabled running on ready up alive
inactive disabled stopped off terminated paused
error failure failed fail exception fault broken crash panic blow problem wrong
warning warn deprecated obsolete outdated
ignored skipped skip executed disabled not run
passed ok success succeed succeeded green
test case spec check suite
expected want wanted right left actual mismatch assertion compare
version release tag build revision
branch default_branch line development trunk main master head
commit sha revision hash change
fork copy clone mirror
copies replicas replica instances desired unavailable rollout update strategy
image container docker picture
namespace scope prefix short service
type kind category class sort
language lang written
license licence
topic keyword tag subject label
distribution os operating system osimage platform linux
kernel core
architecture arch amd64
region zone location datacenter availability
default fallback initial preset blank
value setting parameter option config configuration
variable env environment
timeout deadline wait expire expiry ttl
retry attempt again
queue job task worker
message text body comment note says
request call query invoke
response reply answer result return
truncated more next pagination page everything complete rest hasmore marker
public visibility visible private open
price cost amount fee charge
currency money
country nation
city town
phone telephone number msisdn
method verb get post
function method def procedure routine
class struct type object
parameter argument arg param
return returns gives yield
dependency depends requirement package library module
install setup
compile build built compiling
cache cached caching
log logging logs statement general_log
sort order collation sorting
database db table schema
restart reboot respawn
start begin boot launch
throttle rate limit capacity slow
reason cause why because
usage use used example
"""


@lru_cache(maxsize=8192)
def stem(word: str) -> str:
    """Remove a common ending, so that `creating` and `created` share a stem."""
    if len(word) <= 3 or not word.isalpha() or not word.isascii():
        return word
    if word.endswith("ies") and len(word) > 4:
        return word[:-3] + "y"
    for ending in ("ation", "ions", "ion", "ing", "ed", "es", "s", "e"):
        if word.endswith(ending) and len(word) - len(ending) >= 3 and not word.endswith("ss"):
            return word[: -len(ending)]
    return word


@lru_cache(maxsize=1)
def _index() -> dict[str, tuple[str, ...]]:
    index: dict[str, dict[str, None]] = {}
    for line in _GROUPS.strip().splitlines():
        group = [stem(word) for word in line.split()]
        for word in group:
            index.setdefault(word, {}).update(dict.fromkeys(group))
    return {word: tuple(other for other in group if other != word) for word, group in index.items()}


def related(word: str) -> tuple[str, ...]:
    """Return the stems of the synonyms of `word`, which is itself a stem."""
    return _index().get(word, ())
