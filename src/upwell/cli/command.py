"""Click commands made of annotated functions.

The parameters of the function are the arguments and options of its command:

    def find(
        words: Annotated[list[str], Argument(metavar="WORD", help="What to look for.")],
        limit: Annotated[int, Option("-k", min=1, help="At most N.")] = 10,
        as_json: Annotated[bool, Option("--json", help="Print JSON.")] = False,
    ) -> None:

A parameter without a default is required. It is a str, an int, a bool (a flag), a Path, a StrEnum,
or a list of these. Without any value, a list is None.
"""

import inspect
from collections.abc import Callable
from contextlib import suppress
from enum import StrEnum
from math import inf
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, get_args, get_origin

import click


class Argument:
    """A positional argument."""

    def __init__(self, *, metavar: str, help: str = "") -> None:
        self.metavar = metavar
        self.help = help


class Option:
    """An option. Without `names`, it is named after the parameter. `min` and `max` bound an int."""

    def __init__(
        self,
        *names: str,
        metavar: str | None = None,
        help: str = "",
        min: int | None = None,
        max: int | None = None,
    ) -> None:
        self.names = names
        self.metavar = metavar
        self.help = help
        self.bounds = (min, max)


class Command(click.Command):
    """The command of an annotated function."""

    def __init__(self, name: str | None, *, callback: Callable[..., Any], **settings: Any) -> None:
        super().__init__(name, callback=callback, **{**settings, "params": _parameters(callback)})

    def format_arguments(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        arguments = [each for each in self.params if isinstance(each, click.Argument)]
        if arguments:
            with formatter.section("Arguments"):
                formatter.write_dl([each.get_help_record(ctx) for each in arguments])


class Group(click.Group):
    """A command with subcommands, listed as they are defined. Without a subcommand it calls
    `function`, or prints its help if there is none."""

    command_class = Command

    def __init__(self, help: str, function: Callable[..., None] | None = None) -> None:
        super().__init__(
            help=help,
            callback=_without_subcommand(function) if function else None,
            params=_parameters(function) if function else [],
            invoke_without_command=function is not None,
        )

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.commands)


def _without_subcommand(function: Callable[..., None]) -> Callable[..., None]:
    def callback(**values: Any) -> None:
        if click.get_current_context().invoked_subcommand is None:
            function(**values)

    return callback


class _Argument(click.Argument):
    def get_usage_pieces(self, ctx: click.Context) -> list[str]:
        name = self.metavar if self.required else f"[{self.metavar}]"
        return [f"{name}{'...' if self.nargs == -1 else ''}"]

    def get_help_record(self, ctx: click.Context) -> tuple[str, str]:
        name, text = super().get_help_record(ctx)
        default = self.get_default(ctx)
        remark = "[required]" if self.required else f"[default: {default}]" if default else ""
        return name, f"{text}  {remark}".strip()


class _Option(click.Option):
    def get_help_extra(self, ctx: click.Context) -> Any:
        extra = super().get_help_extra(ctx)
        if isinstance(self.type, _Number) and self.type.bounds:
            extra["range"] = self.type.bounds
        return extra


class _Number(click.ParamType[int]):
    """A whole number. `bounds` is the allowed range in words."""

    name = "N"

    def __init__(self, least: int | None = None, most: int | None = None) -> None:
        self._range = (-inf if least is None else least, inf if most is None else most)
        upper = "or more" if most is None else f"to {most}"
        self.bounds = "" if least is None else f"{least} {upper}"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        least, most = self._range
        with suppress(ValueError):
            if least <= (number := int(value)) <= most:
                return number
        option = param.opts[-1] if param else "the number"
        within = f", {self.bounds}" if self.bounds else ""
        raise click.UsageError(f"{option} is {value!r}: must be a whole number{within}", ctx)


class _Choice(click.Choice[StrEnum]):
    """The values of a StrEnum. `click.Choice` takes the names of its members."""

    def normalize_choice(self, choice: object, ctx: click.Context | None) -> str:
        return str(choice)


def _parameters(function: Callable[..., Any]) -> list[click.Parameter]:
    return [_parameter(each) for each in inspect.signature(function).parameters.values()]


def _parameter(parameter: inspect.Parameter) -> click.Parameter:
    name, default = parameter.name, parameter.default
    (declared,) = parameter.annotation.__metadata__
    kind, is_list = _kind(parameter.annotation.__origin__)
    settings: dict[str, Any] = {
        "callback": _as_list if is_list else None,
        "metavar": declared.metavar,
        "help": declared.help,
    }
    if default is parameter.empty:
        settings["required"] = True
    else:
        settings["default"] = str(default) if isinstance(default, StrEnum) else default
    if isinstance(declared, Argument):
        return _Argument([name], type=_type(kind), nargs=-1 if is_list else 1, **settings)
    return _Option(
        [name, *(declared.names or [f"--{name.replace('_', '-')}"])],
        type=_type(kind, *declared.bounds),
        is_flag=kind is bool,
        multiple=is_list,
        show_default=default != "",
        **settings,
    )


def _kind(annotation: Any) -> tuple[Any, bool]:
    """The type of one value, and whether the annotation is a list."""
    if isinstance(annotation, UnionType):
        (annotation,) = {*get_args(annotation)} - {NoneType}
    is_list = get_origin(annotation) is list
    return get_args(annotation)[0] if is_list else annotation, is_list


def _type(kind: Any, least: int | None = None, most: int | None = None) -> Any:
    if kind is int:
        return _Number(least, most)
    if kind is Path:
        return click.Path(path_type=Path, readable=False)
    return _Choice(list(kind)) if issubclass(kind, StrEnum) else kind


def _as_list(ctx: click.Context, param: click.Parameter, values: tuple[Any, ...]) -> Any:
    return list(values) or None
