"""Requests that a program's client has signed with AWS's Signature Version 4.

The signature covers the host and the path, which are those of the run's own server. So a request that goes on to the
service gets the program's key of Bedrock's, or is signed anew with its credentials: botocore does it, as the program's
own client would.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING

from evalkit.errors import UsageError
from evalkit.models.cassettes.http.messages import HttpRequest

if TYPE_CHECKING:
    from botocore.credentials import Credentials

_SCOPE = re.compile(r"AWS4-HMAC-SHA256 .*Credential=[^/,\s]+/\d{8}/([\w-]+)/([\w-]+)/aws4_request")
_SIGNATURE = frozenset({"authorization", "x-amz-date", "x-amz-security-token", "x-amz-content-sha256"})


def find_signed_region(headers: Mapping[str, str]) -> str | None:
    """Find the region for which a request is signed; None for one that is not."""
    scope = _SCOPE.match(headers.get("authorization", ""))
    return None if scope is None else scope[1]


def sign_again(
    request: HttpRequest, headers: Mapping[str, str], environment: Mapping[str, str | None]
) -> dict[str, str]:
    """Return the headers of a signed request for the URL that it goes to; those of any other as they are.

    `environment` is the program's. Raises UsageError where botocore or credentials are missing.
    """
    scope = _SCOPE.match(headers.get("authorization", ""))
    if scope is None:
        return dict(headers)
    plain = {name: value for name, value in headers.items() if name not in _SIGNATURE}
    if key := environment.get("AWS_BEARER_TOKEN_BEDROCK"):
        return {**plain, "authorization": f"Bearer {key}"}
    try:
        from botocore.auth import SigV4Auth
        from botocore.awsrequest import AWSRequest
    except ImportError:
        raise UsageError(
            f"a program signs its requests to {request.host} for evalkit's own server, and evalkit must sign them "
            "again: pip install 'pytest-evalkit[bedrock]'; a key in AWS_BEARER_TOKEN_BEDROCK needs no signature"
        ) from None
    signed = AWSRequest(request.method, request.url, headers=plain, data=request.body)
    region, service = scope.groups()
    SigV4Auth(_find_credentials(environment), service, region).add_auth(signed)
    return {name.lower(): value for name, value in signed.headers.items()}


def _find_credentials(environment: Mapping[str, str | None]) -> Credentials:
    """Find a program's credentials: in its environment, else where AWS's clients look on this machine."""
    from botocore.credentials import Credentials
    from botocore.session import Session

    key, secret = environment.get("AWS_ACCESS_KEY_ID"), environment.get("AWS_SECRET_ACCESS_KEY")
    if key and secret:
        return Credentials(key, secret, environment.get("AWS_SESSION_TOKEN"))
    found = Session(profile=environment.get("AWS_PROFILE")).get_credentials()
    if found is None:
        raise UsageError("a program signs its requests to AWS, and evalkit finds no credentials to sign them again")
    return found
