"""Roles of a PostgreSQL server for tests, and URLs with which they connect."""

from __future__ import annotations

import random
from typing import LiteralString
from urllib.parse import urlsplit, urlunsplit

import psycopg
from psycopg import sql


class Roles:
    """Roles that are dropped, with what they own in one database, when the test has ended."""

    def __init__(self, url: str) -> None:
        """Take the URL of the database, as a user who may make roles."""
        self.url = url
        self._made: list[str] = []

    def make(self, name: str, options: LiteralString = "LOGIN") -> str:
        """Make a role, and return its name, which no other has."""
        role = f"{name} {random.getrandbits(40):x}"
        with psycopg.connect(self.url, autocommit=True) as connection:
            connection.execute(sql.SQL("CREATE ROLE {} PASSWORD 'secret' " + options).format(sql.Identifier(role)))
        self._made.append(role)
        return role

    def url_of(self, role: str) -> str:
        """Return the URL with which a role connects to the database."""
        parts = urlsplit(self.url)
        hosts = parts.netloc.rpartition("@")[2]
        return urlunsplit(parts._replace(netloc=f"{role.replace(' ', '%20')}:secret@{hosts}"))

    def run(self, statement: LiteralString, *names: str) -> None:
        """Run a statement as the user who may make roles; each `{}` in it is a name."""
        with psycopg.connect(self.url, autocommit=True) as connection:
            connection.execute(sql.SQL(statement).format(*map(sql.Identifier, names)))

    def drop_one(self, role: str) -> None:
        """Drop a role now."""
        self.run("DROP ROLE {}", role)
        self._made.remove(role)

    def drop(self) -> None:
        """Drop them all."""
        for role in self._made:
            self.run("DROP OWNED BY {} CASCADE", role)
        for role in self._made:
            self.run("DROP ROLE {}", role)
