"""The record of what `upwell setup` changed and learned. `upwell setup --undo` reverts exactly
these changes. `--forget` also drops what was learned.
"""

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

import msgspec
import tomlkit
from msgspec import Struct, field
from msgspec.structs import replace

from upwell.ground.errors import StoreUnwritable
from upwell.ground.files import exclusively, read_regular_file, write_atomically, writing
from upwell.hosts.install import FilePlan, digest
from upwell.setup.config_file import read_document

CAPTURE = ("hook", "capture")
SHORTEN = ("hook", "compress")
LESSONS = ("lessons", "model")


class ConfigChange(Struct, frozen=True, kw_only=True):
    """A change to `config.toml`. `before` is the earlier content, or None if there was no file.
    `written` is the digest of what setup wrote. `capture`, `shorten` and `lessons` are True if
    setup switched them on."""

    before: str | None = None
    written: str = ""
    servers: tuple[str, ...] = ()
    capture: bool = False
    shorten: bool = False
    lessons: bool = False

    def after(self, path: Path, keep: Collection[str] = ()) -> str | None:
        """The file's content with this change undone, except for the servers in `keep`. If there
        are any, or if the file has been edited since, only our entries are removed. None if the
        file should not exist.

        Raises:
            ConfigError: the file is not TOML.
        """
        document = read_document(path)
        present = tomlkit.dumps(document) if path.exists() else None
        if present is None or (digest(present) == self.written and not keep):
            return self.before
        servers = document.get("server", {})
        for name in set(self.servers).difference(keep):
            servers.pop(name, None)
        if not servers:
            document.pop("server", None)
        switches = ((self.capture, CAPTURE), (self.shorten, SHORTEN), (self.lessons, LESSONS))
        for is_ours, (section, key) in switches:
            if is_ours:
                document.get(section, {}).pop(key, None)
            if not document.get(section, True):
                document.pop(section)
        text = tomlkit.dumps(document)
        return text if text.strip() or self.before is not None else None


class SetupRecord(Struct, frozen=True, kw_only=True):
    """What setup changed and learned. `hooks` names the agents whose hooks changed, and `clients`
    those whose servers changed. `files` are the paths of the changed files. `learned` maps each
    kind of finding to the keys of its findings. `lessons` is True from when setup switched lessons
    on until they are forgotten: the daemon writes some, too.
    """

    hooks: tuple[str, ...] = ()
    clients: tuple[str, ...] = ()
    files: tuple[str, ...] = ()
    config: ConfigChange | None = None
    learned: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    lessons: bool = False

    def joined(self, other: "SetupRecord") -> "SetupRecord":
        """This record combined with that of a later run."""
        kinds = {*self.learned, *other.learned}
        return SetupRecord(
            hooks=_joined(self.hooks, other.hooks),
            clients=_joined(self.clients, other.clients),
            files=_joined(self.files, other.files),
            config=_joined_change(self.config, other.config),
            learned={
                kind: _joined(self.learned.get(kind, ()), other.learned.get(kind, ()))
                for kind in kinds
            },
            lessons=self.lessons or other.lessons,
        )


def read_record(path: Path) -> SetupRecord | None:
    """The record, or None if there is no file.

    Raises:
        StoreUnwritable: the file is damaged or cannot be read.
    """
    try:
        return msgspec.json.decode(read_regular_file(path), type=SetupRecord)
    except FileNotFoundError:
        return None
    except (OSError, msgspec.MsgspecError) as error:
        raise StoreUnwritable(
            f"{path} cannot be read: {error}",
            hint="`upwell hook uninstall` removes the hooks; "
            "`upwell setup --undo --only servers` restores the servers",
        ) from error


def add_to_record(path: Path, addition: SetupRecord) -> None:
    """Add a run's changes to the record.

    Raises:
        StoreUnwritable: the file is damaged or cannot be written.
    """
    with exclusively(path):
        _write(path, (read_record(path) or SetupRecord()).joined(addition))


def reduce_record(path: Path, *, undone: bool = False, forgotten: bool = False) -> None:
    """Drop the learned findings if `forgotten`, and everything else if `undone`. An empty record is
    deleted.

    Raises:
        StoreUnwritable: the file is damaged or cannot be written.
    """
    with exclusively(path):
        record = read_record(path) or SetupRecord()
        if undone:
            record = SetupRecord(learned=record.learned, lessons=record.lessons)
        if forgotten:
            record = replace(record, learned={}, lessons=False)
        changes = (record.hooks, record.clients, record.config)
        if any(changes) or any(record.learned.values()) or record.lessons:
            _write(path, record)
        else:
            path.unlink(missing_ok=True)


def config_plan(
    path: Path,
    text: str | None,
    before: str | None,
    *,
    capture: bool = True,
    shorten: Sequence[str] = (),
    lessons: str = "",
) -> FilePlan:
    """Plan the change from `before` to `text`. The plan also switches on `capture`, shortening for
    the agents in `shorten`, and the model `lessons` for lessons. A key that `text` already sets
    keeps its value.
    """
    document = tomlkit.parse(text or "")
    values = ((CAPTURE, capture), (SHORTEN, list(shorten)), (LESSONS, lessons))
    for (section, key), value in values:
        if value and key not in document.get(section, {}):
            document.setdefault(section, tomlkit.table())[key] = value
            text = tomlkit.dumps(document)
    return FilePlan("config", path, before, text)


def switch_of(text: str | None, switch: tuple[str, str]) -> object:
    """The value of a switch, such as `CAPTURE`, in the text of `config.toml`."""
    section, key = switch
    return tomlkit.parse(text or "").get(section, {}).get(key)


def switches_on(plan: FilePlan, switch: tuple[str, str]) -> bool:
    """True if the plan sets a switch that was not set before."""
    return switch_of(plan.before, switch) is None and switch_of(plan.after, switch) is not None


def _write(path: Path, record: SetupRecord) -> None:
    with writing(path):
        write_atomically(path, msgspec.json.encode(record).decode())


def _joined(earlier: tuple[str, ...], later: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(dict.fromkeys([*earlier, *later]))


def _joined_change(earlier: ConfigChange | None, later: ConfigChange | None) -> ConfigChange | None:
    """Combine two changes. Undoing the result restores the content before the first change, but
    only if nobody edited the file between the two.
    """
    if earlier is None or later is None or earlier == later:
        return later or earlier
    is_unedited = later.before is not None and digest(later.before) == earlier.written
    return ConfigChange(
        before=earlier.before if is_unedited else later.before,
        written=later.written if is_unedited else "",
        servers=_joined(earlier.servers, later.servers),
        capture=earlier.capture or later.capture,
        shorten=earlier.shorten or later.shorten,
        lessons=earlier.lessons or later.lessons,
    )
