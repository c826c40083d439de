"""An agent of the OpenAI SDK under the hooks and the guardrail; its model is a list of answers."""

import asyncio

from agents import Agent, InputGuardrailTripwireTriggered, ModelResponse, Usage, function_tool, set_tracing_disabled
from agents.models.interface import Model
from openai.types.responses import ResponseFunctionToolCall, ResponseOutputMessage, ResponseOutputText
from runcycles import AsyncCyclesClient, CyclesConfig, Unit
from runcycles_openai_agents import CyclesRunHooks, ToolEstimateConfig, cycles_budget_guardrail
from saying import say

set_tracing_disabled(True)


class Answers(Model):
    def __init__(self, *outputs):
        self._outputs = iter(outputs)

    async def get_response(self, *_given, **_named):
        usage = Usage(requests=1, input_tokens=30, output_tokens=10, total_tokens=40)
        return ModelResponse(output=[next(self._outputs)], usage=usage, response_id=None)

    def stream_response(self, *_given, **_named):
        raise NotImplementedError


def text(words):
    content = [ResponseOutputText(text=words, type="output_text", annotations=[])]
    return ResponseOutputMessage(id="m", type="message", role="assistant", status="completed", content=content)


def call():
    return ResponseFunctionToolCall(call_id="call-1", name="search", arguments='{"text":"ab"}', type="function_call")


@function_tool
def search(text: str) -> str:
    """Search for a text."""
    return text * 10


async def main():
    config = CyclesConfig.from_env()
    async with AsyncCyclesClient(config) as client:
        hooks = CyclesRunHooks(
            client=client,
            config=config,
            tenant=config.tenant,
            tool_estimates={"search": ToolEstimateConfig(estimate=25, unit=Unit.TOKENS, action_kind="tool.search")},
            llm_estimate=100,
            llm_unit=Unit.TOKENS,
        )
        agent = Agent(name="bot", model=Answers(call(), text("done")), tools=[search])
        result = await hooks.run(agent, input="go")
        guard = cycles_budget_guardrail(client=client, tenant=config.tenant, estimate=10**9, unit=Unit.TOKENS)
        poor = Agent(name="bot", model=Answers(text("never")), input_guardrails=[guard])
        try:
            await hooks.run(poor, input="go")
            tripped = None
        except InputGuardrailTripwireTriggered as error:
            tripped = error.guardrail_result.output.output_info
        say(output=result.final_output, tripped=tripped)


asyncio.run(main())
