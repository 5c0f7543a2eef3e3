// Tests of chat templates: the texts that transformers' apply_chat_template() gives, and what is
// wrong with a template in words.
#include "tandem/text/chat/chat_template.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tandem/core/error.h"
#include "tandem/core/json.h"

namespace tandem::text {
namespace {

using ::testing::HasSubstr;

const JinjaValue kTalk = {{{"role", "user"}, {"content", " Who sails? "}},
                          {{"role", "assistant"}, {"content", "Dorla."}},
                          {{"role", "user"}, {"content", "Where?"}}};

std::string render(std::string_view source, const JinjaValue& messages = kTalk,
                   bool add_generation_prompt = false) {
  return ChatTemplate(source, {.bos = "<s>", .eos = "</s>"})
      .render(messages, add_generation_prompt);
}

std::string error(std::string_view source) {
  try {
    render(source);
  } catch (const DataError& error) {
    return error.what();
  }
  return "no error";
}

// {{ expression }}.
std::string value(const std::string& expression) { return render("{{ " + expression + " }}"); }

// The form of SmolLM2, Qwen and most others.
TEST(ChatTemplate, ChatMl) {
  constexpr std::string_view kSource =
      "{% for message in messages %}{% if loop.first and messages[0]['role'] != 'system' %}"
      "{{ '<|im_start|>system\nYou help.<|im_end|>\n' }}{% endif %}"
      "{{'<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n'}}"
      "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}";
  const std::string all =
      "<|im_start|>system\nYou help.<|im_end|>\n<|im_start|>user\n Who sails? <|im_end|>\n"
      "<|im_start|>assistant\nDorla.<|im_end|>\n<|im_start|>user\nWhere?<|im_end|>\n";
  EXPECT_EQ(render(kSource), all);
  EXPECT_EQ(render(kSource, kTalk, true), all + "<|im_start|>assistant\n");
  const JinjaValue system = {{{"role", "system"}, {"content", "Be short."}}};
  EXPECT_EQ(render(kSource, system), "<|im_start|>system\nBe short.<|im_end|>\n");
}

// The form of TinyLlama: tags on lines of their own.
TEST(ChatTemplate, LinesOfTagsLeaveNothing) {
  constexpr std::string_view kSource =
      "{% for message in messages %}\n{% if message['role'] == 'user' %}\n{{ '<|user|>\n' + "
      "message['content'] + eos_token }}\n  {% elif message['role'] == 'assistant' %}\n{{ "
      "'<|assistant|>\n'  + message['content'] + eos_token }}\n{% endif %}\n{% if loop.last and "
      "add_generation_prompt %}\n{{ '<|assistant|>' }}\n{% endif %}\n{% endfor %}\n";
  EXPECT_EQ(render(kSource, kTalk, true),
            "<|user|>\n Who sails? </s>\n<|assistant|>\nDorla.</s>\n<|user|>\nWhere?</s>\n"
            "<|assistant|>\n");
}

// The form of Llama 3: marks that strip, variables that are set, and no date.
TEST(ChatTemplate, VariablesAndMarks) {
  constexpr std::string_view kSource =
      "{{- bos_token }}\n{%- if strftime_now is defined %}\n    {%- set date = "
      "strftime_now('%d') %}\n{%- else %}\n    {%- set date = '26 Jul 2024' %}\n{%- endif %}\n"
      "{{- date }}\n{%- for message in messages %}\n    {%- if message.role == 'user' %}\n"
      "        {{- '[' ~ loop.index0 ~ ']' + message['content'] | trim }}\n    {%- endif %}\n"
      "{%- endfor %}";
  EXPECT_EQ(render(kSource), "<s>26 Jul 2024[0]Who sails?[2]Where?");
}

// The form of Qwen3: a namespace, lists from behind, and methods of texts.
TEST(ChatTemplate, NamespacesAndMethods) {
  constexpr std::string_view kSource =
      "{%- set ns = namespace(last=messages|length - 1, found=false) %}\n"
      "{%- for message in messages[::-1] %}\n"
      "    {%- set index = (messages|length - 1) - loop.index0 %}\n"
      "    {%- if not ns.found and message.role == \"assistant\" and message.content is string "
      "and not(message.content.startswith('<x>') and message.content.endswith('</x>')) %}\n"
      "        {%- set ns.found = true %}\n        {%- set ns.last = index %}\n    {%- endif %}\n"
      "{%- endfor %}\n{{- ns.last }} {{ messages[1].content.split('r')[-1].lstrip('l') }}"
      "{%- if tools %}{{ tools | tojson }}{% endif %}"
      "{%- if enable_thinking is defined and enable_thinking is false %}no{% endif %}";
  EXPECT_EQ(render(kSource), "1 a.");
}

TEST(ChatTemplate, Expressions) {
  EXPECT_EQ(value("1 + 2 * 3 - 4 // 3"), "6");
  EXPECT_EQ(value("-7 // 2"), "-4");
  EXPECT_EQ(value("-7 % 3"), "2");
  EXPECT_EQ(value("1 / 2"), "0.5");
  EXPECT_EQ(value("'a' ~ 1 + 2 if false else none"), "None");
  EXPECT_EQ(value("[1, 'a', true, none, 2.0]"), "[1, 'a', True, None, 2.0]");
  EXPECT_EQ(value("{'a': [1]}['a'][0]"), "1");
  EXPECT_EQ(value("'a' in 'cat' and 'x' not in ['y']"), "True");
  EXPECT_EQ(value("missing"), "");
  EXPECT_EQ(value("missing is defined or messages[9] is defined"), "False");
  EXPECT_EQ(value("missing|default('x') ~ none|default('y', true)"), "xy");
  EXPECT_EQ(value("'äbc'[1:] ~ 'äbc'[0] ~ 'äbc'|length ~ 'abc'[::-1]"), "bcä3cba");
  EXPECT_EQ(value("{'b': 1, 'ä': [true, none]}|tojson"), "{\"b\": 1, \"ä\": [true, null]}");
  EXPECT_EQ(value("[1]|tojson(indent=2)"), "[\n  1\n]");
  EXPECT_EQ(value("' x '.strip() + 'a,b'.split(',')|join('-') + 'aXa'.replace('X', '')"), "xa-baa");
  EXPECT_EQ(value("messages|first|length ~ messages[-1].role|upper"), "2USER");
  EXPECT_EQ(value("not true or false"), "False");
  EXPECT_EQ(value("1 < 2 and 'a' <= 'a' and 2 != 2.5"), "True");
  EXPECT_EQ(value("missing == none"), "False");
  EXPECT_EQ(value("'it\\'s'"), "it's");
}

// The values are those of jinja2 3.1.
TEST(ChatTemplate, Tests) {
  for (const char* holds :
       {"3 is odd",        "2 is not odd",   "4 is even",       "6 is divisibleby(3)",
        "1 is equalto 1",  "'a' is eq('a')", "1 is sameas 1",   "'a' is in ['a']",
        "'a' is in 'bca'", "true is true",   "false is false",  "messages[0].name is undefined",
        "{} is mapping",   "[] is iterable", "'a' is sequence", "1.5 is float",
        "1 is integer",    "true is number", "true is boolean", "missing is undefined"})
    EXPECT_EQ(value(holds), "True") << holds;
  for (const char* fails : {"3 is even", "6 is divisibleby 4", "1 is true", "true is integer",
                            "1 is boolean", "1 is float", "'b' is in ['a']"})
    EXPECT_EQ(value(fails), "False") << fails;
}

TEST(ChatTemplate, MappingsAndLetters) {
  EXPECT_EQ(value("{'a': 1, 'b': 2}.values()|list"), "[1, 2]");
  EXPECT_EQ(value("{'a': 1}.keys()|list"), "['a']");
  EXPECT_EQ(value("{'a': 1}.get('b')"), "None");
  EXPECT_EQ(value("{'a': 1}.get('b', 3) + {'a': 1}.get('a')"), "4");
  EXPECT_EQ(render("{% for k, v in {'b': 1, 'A': 2, 'c': 0}|dictsort %}{{ k }}{{ v }}{% endfor %}"),
            "A2b1c0");
  EXPECT_EQ(value("\"it's a-b (c) [d] <e> {f}\"|title"), "It's A-B (C) [D] <E> {F}");
  EXPECT_EQ(value("\"it's 1st a-b\".title()"), "It'S 1St A-B");
  EXPECT_EQ(value("'hELLO wORLD'|capitalize ~ 'x Y'.capitalize()"), "Hello worldX y");
  EXPECT_EQ(value("'ÄB'|lower ~ 'äb'|title ~ 'straße'.upper()"), "äbÄbSTRASSE");
}

TEST(ChatTemplate, ListsAndNumbers) {
  const std::string rows = "[{'r': 'a', 'n': 1}, {'r': 'b', 'n': 0}]";
  EXPECT_EQ(value(rows + "|selectattr('r', 'equalto', 'b')|map(attribute='n')|list"), "[0]");
  EXPECT_EQ(value(rows + "|rejectattr('n')|map(attribute='r')|join(',')"), "b");
  EXPECT_EQ(value("[1, none, 2]|select|list ~ [1, 2]|reject('odd')|list"), "[1, 2][2]");
  EXPECT_EQ(value("['a', 'b']|map('upper')|join"), "AB");
  EXPECT_EQ(value("'abc'|reverse ~ [1, 2]|reverse|list"), "cba[2, 1]");
  EXPECT_EQ(value("'5'|int + ' 2.9 '|int + 3.7|int + true|int + 'x'|int"), "11");
  EXPECT_EQ(value("1e300|int ~ '1e300'|int"), "00") << "further than any integer";
  EXPECT_EQ(value("'aXbX'.replace('X', '-', 1) ~ 'aXbX'|replace('X', '', 1)"), "a-bXabX");
  EXPECT_THAT(error("{{ [1]|join(',', 'n') }}"), HasSubstr("'join' of Jinja with 2 arguments"));
}

TEST(ChatTemplate, LoopsAndBlocks) {
  EXPECT_EQ(render("{% for k, v in {'a': 1, 'b': 2}.items() %}{{ k }}{{ v }},{% endfor %}"),
            "a1,b2,");
  EXPECT_EQ(render("{% for m in messages if m.role == 'user' %}{{ loop.index }}/{{ loop.length }}"
                   "{% if loop.last %}!{% endif %}{% endfor %}"),
            "1/22/2!");
  EXPECT_EQ(render("{% for m in [] %}x{% else %}none{% endfor %}"), "none");
  EXPECT_EQ(render("{% for i in range(5) %}{% if i == 1 %}{% continue %}{% endif %}"
                   "{% if i == 3 %}{% break %}{% endif %}{{ i }}{% endfor %}"),
            "02");
  EXPECT_EQ(render("{% set x %}a{{ 1 }}{% endset %}[{{ x }}]"), "[a1]");
  EXPECT_EQ(render("{% set x = 1 %}{% for i in [2] %}{% set x = i %}{% endfor %}{{ x }}"), "1");
  EXPECT_EQ(render("a{# {{ x }} #}b{% generation %}c{% endgeneration %}"), "abc");
  EXPECT_EQ(render("{{ '}}' }}{{ {'a': 1}['a'] }}"), "}}1");
}

TEST(ChatTemplate, Blanks) {
  EXPECT_EQ(render("a\n  {% if true %}\n  b\n  {% endif %}\nc\n"), "a\n  b\nc");
  EXPECT_EQ(render("a\n  {{ 1 }}\nb"), "a\n  1\nb");
  EXPECT_EQ(render("a \n {{- 1 -}} \n b"), "a1b");
  EXPECT_EQ(render("a {% if true %} b {% endif %} c"), "a  b  c");
  EXPECT_EQ(render("  {%+ if true %}\nx{% endif +%}\ny"), "  x\ny");
  EXPECT_EQ(render("{% if true %}\n  {% if true %}x{% endif %}{% endif %}"), "x");
}

TEST(ChatTemplate, WhatIsWrong) {
  EXPECT_EQ(error("{{ raise_exception('turns must alternate') }}"),
            "the chat template refuses the messages: turns must alternate");
  EXPECT_THAT(error("a\n{% macro x() %}{% endmacro %}"),
              HasSubstr("line 2: the statement 'macro' of Jinja is not supported"));
  EXPECT_THAT(error("\n\n{{ 1|pprint }}"),
              HasSubstr("line 3: the filter 'pprint' of Jinja is not supported"));
  EXPECT_THAT(error("{{ strftime_now('%d') }}"), HasSubstr("the function 'strftime_now'"));
  EXPECT_THAT(error("{{ 'a' + 1 }}"), HasSubstr("'+' of a text and a number is not defined"));
  EXPECT_THAT(error("{{ missing.x }}"), HasSubstr("found an undefined value"));
  EXPECT_THAT(error("{% if true %}"), HasSubstr("line 1: found no 'endif'"));
  EXPECT_THAT(error("{% endfor %}"), HasSubstr("found 'endfor' without its begin"));
  EXPECT_THAT(error("{{ 1 "), HasSubstr("the tag '{{' has no end"));
  EXPECT_THAT(error("{{ 1 2 }}"), HasSubstr("found '2', expected the end of the tag"));
  EXPECT_THAT(error("{{ [1, }}"), HasSubstr("has no end"));
  EXPECT_THAT(error("{{ 1 ? 2 }}"), HasSubstr("found '?'"));
  EXPECT_THAT(error("{{ 1 // 0 }}"), HasSubstr("division by zero"));
  EXPECT_THAT(error("{% for x in range(9999999) %}{% endfor %}"), HasSubstr("range: found 0 to"));
}

}  // namespace
}  // namespace tandem::text
