"""What a project imports from, wherever the search path of the user leads."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from liza.repo.pool import site_packages

if TYPE_CHECKING:
    from pathlib import Path


def test_a_search_path_may_lead_to_where_we_may_not_look(tmp_path: Path) -> None:
    """As that of whoever became another user without a login; the name stands for root's own directory."""
    ours = tmp_path / "lib/python3/site-packages"
    ours.mkdir(parents=True)
    (tmp_path / "pyvenv.cfg").touch()
    path = os.pathsep.join([f"/{'x' * 300}/bin", str(tmp_path / "bin")])

    assert ours in site_packages({"PATH": path}, "pytest", [])
