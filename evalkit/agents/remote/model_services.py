"""The model services for which the run's own server stands in, and the variables by which clients are led there.

Each variable stands in the source of clients that go by it. Mistral's and OpenRouter's own clients take a URL in code
alone; those of LangChain and LiteLLM read one.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from msgspec import Struct

from evalkit.agents.remote.aws_signing import find_signed_region
from evalkit.models.cassettes.http.traffic import Traffic
from evalkit.text.url import complete_ollama_host

Environment = Mapping[str, str | None]  # None: a variable that a program does not get


class ModelService(Struct, frozen=True):
    """A model's service: where the run's server stands in for it, and the variables that clients read.

    Without a `url` of its own it is known only where the program's environment names one.
    """

    mount: str  # below the run's server
    url: str
    url_variable: str
    key_variables: tuple[str, ...] = ()  # offline, a program without any of them gets the first
    has_other_keys: bool = False  # in files, or of the machine
    version: str = ""  # of the API: it stands in the paths of some clients, and in the URLs of others

    def find_base(self, environment: Environment, headers: Mapping[str, str]) -> str:
        """Return the URL to which a program's client would have gone."""
        own = environment.get(self.url_variable)
        if own:
            return (own if "://" in own else complete_ollama_host(own)).rstrip("/")
        region = find_signed_region(headers) or environment.get("AWS_REGION") or environment.get("AWS_DEFAULT_REGION")
        return self.url.replace("{region}", region or "us-east-1")


_BEDROCK = "https://bedrock-runtime.{region}.amazonaws.com"
_BEDROCK_KEY = "AWS_BEARER_TOKEN_BEDROCK"
_AWS_CREDENTIALS = (
    "AWS_ACCESS_KEY_ID",
    "AWS_PROFILE",
    "AWS_WEB_IDENTITY_TOKEN_FILE",
    "AWS_CONTAINER_CREDENTIALS_FULL_URI",
    "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
)
_OLLAMA = "http://127.0.0.1:11434"

SERVICES = (
    ModelService("openai/v1", "https://api.openai.com/v1", "OPENAI_BASE_URL", ("OPENAI_API_KEY",)),
    ModelService(
        "gemini",
        "https://generativelanguage.googleapis.com",
        "GOOGLE_GEMINI_BASE_URL",
        ("GEMINI_API_KEY", "GOOGLE_API_KEY"),
    ),
    ModelService(
        "anthropic",
        "https://api.anthropic.com",
        "ANTHROPIC_BASE_URL",
        ("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN"),
        version="/v1",  # Vercel's client reads the same variable, and takes it for the URL with the version
    ),
    ModelService("bedrock", _BEDROCK, "AWS_ENDPOINT_URL_BEDROCK_RUNTIME"),
    ModelService("bedrock-anthropic", _BEDROCK, "ANTHROPIC_BEDROCK_BASE_URL"),
    ModelService("bedrock-litellm", _BEDROCK, "AWS_BEDROCK_RUNTIME_ENDPOINT"),
    ModelService("ollama", _OLLAMA, "OLLAMA_HOST"),
    ModelService("ollama-litellm", _OLLAMA, "OLLAMA_API_BASE"),
    ModelService("groq", "https://api.groq.com", "GROQ_BASE_URL"),
    ModelService("cohere", "https://api.cohere.com", "CO_API_URL"),
    ModelService("cerebras", "https://api.cerebras.ai", "CEREBRAS_BASE_URL"),
    ModelService("together", "https://api.together.ai", "TOGETHER_BASE_URL"),
    ModelService("perplexity", "https://api.perplexity.ai", "PERPLEXITY_BASE_URL"),
    ModelService("openrouter", "https://openrouter.ai/api/v1", "OPENROUTER_API_BASE"),
    ModelService("mistral", "https://api.mistral.ai/v1", "MISTRAL_BASE_URL"),
    ModelService("mistral-litellm", "https://api.mistral.ai", "MISTRAL_AZURE_API_BASE", version="/v1"),
    ModelService("azure", "", "AZURE_OPENAI_ENDPOINT", ("AZURE_OPENAI_API_KEY",), has_other_keys=True),
    ModelService("azure-litellm", "", "AZURE_API_BASE", ("AZURE_API_KEY",), has_other_keys=True),
    ModelService("openai-old", "", "OPENAI_API_BASE", ("OPENAI_API_KEY",)),
    ModelService("anthropic-litellm", "", "ANTHROPIC_API_BASE", ("ANTHROPIC_API_KEY",)),
    ModelService("gemini-litellm", "", "GEMINI_API_BASE", ("GEMINI_API_KEY",)),
    ModelService("groq-others", "", "GROQ_API_BASE"),
)


class LedTask(Protocol):
    """The part of a task that decides whether a program's clients are led to the run's server."""

    http_traffic: Traffic | None
    is_live: bool


def build_model_environment(
    task: LedTask, base: str, inherited: Environment, case_env: Environment
) -> dict[str, str | None]:
    """Build the variables that lead a program's model clients to the server at `base`; {} where nothing is to be seen.

    What the case itself says stays. Offline a client that wants a key, and has none, gets one that opens nothing.
    """
    traffic = task.http_traffic
    is_played = traffic is not None and traffic.is_played
    if not (is_played or task.is_live):
        return {}
    may_go_out = task.is_live or (traffic is not None and traffic.player is not None and traffic.player.is_recording)
    own = {**inherited, **case_env}
    variables = {} if "AWS_ENDPOINT_URL_BEDROCK_RUNTIME" in case_env else _build_aws_keys(own, may_go_out=may_go_out)
    for service in SERVICES:
        if service.url_variable in case_env or not (service.url or own.get(service.url_variable)):
            continue
        if service.url_variable == "OPENAI_BASE_URL" and _asks_azure(own):
            continue
        variables[service.url_variable] = f"{base}/{service.mount}"
        wants_key = not (may_go_out if service.has_other_keys else task.is_live)
        if wants_key and service.key_variables and not any(own.get(name) for name in service.key_variables):
            variables[service.key_variables[0]] = "offline"
    return variables


def _build_aws_keys(environment: Environment, *, may_go_out: bool) -> dict[str, str | None]:
    """Build the variables by which AWS's clients sign what they ask here: a key of Bedrock's they send by TLS alone.

    The signature is of no account, since requests that go on to the service are signed again.
    """
    has_key = bool(environment.get(_BEDROCK_KEY))
    variables: dict[str, str | None] = {_BEDROCK_KEY: None} if has_key else {}
    if not any(environment.get(name) for name in _AWS_CREDENTIALS) and (has_key or not may_go_out):
        variables |= {"AWS_ACCESS_KEY_ID": "offline", "AWS_SECRET_ACCESS_KEY": "offline"}
    return variables


def find_service_url(path: str, query: str, environment: Environment, headers: Mapping[str, str]) -> str | None:
    """Return the URL that a request for `path` of the run's server is meant for; None if it is no model service's.

    `environment` is that of the program, and `headers` are those of the request.
    """
    for service in SERVICES:
        if path == service.mount or path.startswith(f"{service.mount}/"):
            base, rest = service.find_base(environment, headers), path.removeprefix(service.mount)
            if rest.startswith(service.version):
                base = base.removesuffix(service.version)
            elif base == service.url:
                base += service.version
            return f"{base}{rest}{f'?{query}' if query else ''}" if base else None
    return None


def _asks_azure(environment: Environment) -> bool:
    """Return whether a program asks OpenAI's models at Azure alone: its client in JavaScript refuses both URLs."""
    is_openai = environment.get("OPENAI_BASE_URL") or environment.get("OPENAI_API_KEY")
    return bool(environment.get("AZURE_OPENAI_ENDPOINT")) and not is_openai
