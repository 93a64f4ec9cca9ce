from pathlib import Path

import pytest

from upwell.ground.errors import StoreUnwritable
from upwell.setup.config_file import add_server


def test_a_configuration_that_cannot_be_locked_is_a_clear_error(tmp_path: Path) -> None:
    (tmp_path / "config.toml.lock").mkdir()
    with pytest.raises(StoreUnwritable, match=r"config\.toml\.lock"):
        add_server("files", ["server"], home=tmp_path)
    assert not (tmp_path / "config.toml").exists()
