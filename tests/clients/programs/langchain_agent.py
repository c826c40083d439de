"""A LangChain agent whose turns, model calls and tool calls pass the gates; its model is a list of answers."""

from langchain.agents import create_agent
from langchain_core.language_models.fake_chat_models import GenericFakeChatModel
from langchain_core.messages import AIMessage
from langchain_core.tools import tool
from langchain_runcycles import CyclesFanOutGate, CyclesModelGate, CyclesToolGate
from runcycles import Action, Amount, CyclesClient, CyclesConfig, Subject, Unit
from saying import say


class Model(GenericFakeChatModel):
    def bind_tools(self, tools, **kwargs):
        return self


def amount(number):
    return Amount(unit=Unit.TOKENS, amount=number)


def calling(name, number):
    return AIMessage("", tool_calls=[{"name": "search", "args": {"text": name}, "id": f"call-{number}"}])


@tool
def search(text: str) -> str:
    """Search for a text."""
    return text * 10


def agent_of(client, subject, *, tool_estimate):
    action = Action(kind="llm.completion", name="model")
    gates = [
        CyclesFanOutGate(5, client=client, subject=subject, action=action),
        CyclesModelGate(
            client,
            subject=subject,
            action=action,
            mode="decide+reserve",
            estimate=amount(100),
            cost_fn=lambda _response: amount(60),
        ),
        CyclesToolGate(
            client,
            subject=subject,
            action={"search": Action(kind="tool.search", name="search")},
            mode="decide+reserve",
            estimate=amount(tool_estimate),
            cost_fn=lambda _request, result: amount(len(result.content)),
            idempotency_namespace=f"run-{tool_estimate}",
        ),
    ]
    model = Model(messages=iter([calling("ab", 1), AIMessage("done")]))
    return create_agent(model, tools=[search], middleware=gates)


def contents(agent):
    asked = {"messages": [{"role": "user", "content": "go"}]}
    return [message.content for message in agent.invoke(asked)["messages"]]


config = CyclesConfig.from_env()
with CyclesClient(config) as client:
    subject = Subject(tenant=config.tenant, agent="bot")
    allowed = contents(agent_of(client, subject, tool_estimate=50))
    denied = contents(agent_of(client, subject, tool_estimate=1_000_000))
    say(allowed=allowed, denied=denied)
