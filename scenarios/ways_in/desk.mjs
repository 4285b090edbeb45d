import { readFileSync } from "node:fs";

const request = JSON.parse(readFileSync(0, "utf8"));

async function call(name, args) {
  const url = `${request.functions_url}/call/${name}`;
  return (await (await fetch(url, { method: "POST", body: JSON.stringify(args) })).json()).result;
}

const [serial_number] = request.message.match(/SN\d+/);
const { status } = await call("check_warranty", { serial_number });
await call("send_reply", { to: request.input.email.from, body: `${serial_number} is ${status}.` });
console.log(JSON.stringify({ text: `answered: ${status}` }));
