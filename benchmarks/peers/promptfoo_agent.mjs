// promptfoo: the agent as a JavaScript provider. BENCH_WAIT is what a model turn takes, in seconds.
const WAIT = Number(process.env.BENCH_WAIT || 0) * 1000;

function step(message, results) {
  const pairs = message.split('\n').filter((line) => line.includes(': '));
  const lines = Object.fromEntries(pairs.map((line) => [line.slice(0, line.indexOf(': ')), line.slice(line.indexOf(': ') + 2)]));
  if (results.length === 0) return ['find_book', { isbn: lines.ISBN, branch: lines.Branch }];
  if (results.length === 1)
    return ['reserve', { isbn: lines.ISBN, reader: lines.Reader, days: results[0].available ? 14 : 7, shelf: results[0].shelf }];
  if (results.length === 2)
    return ['send_mail', { to: lines.Mail, subject: 'Your reservation',
      body: `Dear reader,\n${results[0].title} waits for you under ${results[1].number}.\nYour library` }];
  return [null, `Reserved under ${results[1].number}.`];
}

export default class Scripted {
  id() { return 'scripted'; }
  async callApi(message, context) {
    const calls = [], results = [];
    for (;;) {
      if (WAIT) await new Promise((done) => setTimeout(done, WAIT));
      const [name, value] = step(message, results);
      if (name === null) return { output: { text: value, calls } };
      calls.push({ name, arguments: value });
      results.push(context.vars.mocks[name]);
    }
  }
}
