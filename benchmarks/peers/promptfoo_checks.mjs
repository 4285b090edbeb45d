// promptfoo: the five checks.
const has = (actual, expected) => Object.keys(expected).every((key) => JSON.stringify(actual?.[key]) === JSON.stringify(expected[key]));

export default (output, { vars: { expected } }) => {
  const calls = output.calls;
  const byName = Object.fromEntries(calls.map((call) => [call.name, call.arguments]));
  const checks = {
    count: calls.length === expected.count,
    order: calls.map((call) => call.name).join() === expected.order.join(),
    exact: has(byName.find_book, expected.find_book) && has(expected.find_book, byName.find_book ?? {}),
    partial: has(byName.reserve, expected.reserve),
    phrase: (byName.send_mail?.body ?? '').includes(expected.phrase),
  };
  const wrong = Object.keys(checks).filter((name) => !checks[name]);
  return { pass: wrong.length === 0, score: Number(wrong.length === 0), reason: wrong.join(', ') };
};
