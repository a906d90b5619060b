"""Names of databases on a test's own server."""

from urllib.parse import urlsplit


def url_of(server_url: str, name: str) -> str:
    """The URL of another database of the same server."""
    return urlsplit(server_url)._replace(path=f"/{name}").geturl()
