// Writes memories with claude-mem's own store. Arguments: its module, the database, a token.
const [, , storeModule, database, token] = process.argv;
const { SessionStore } = require(storeModule);

const store = new SessionStore(database);
const session = store.createSDKSession("content-1", "shop", "Fix the checkout", undefined, "claude");
store.ensureMemorySessionIdRegistered(session, "mem-1");
store.saveUserPrompt("content-1", 1, "Fix the checkout");
store.storeObservation("mem-1", "shop", {
  type: "decision",
  title: "Prices are integers of cents",
  subtitle: "No floats",
  facts: ["Tax is rounded half up"],
  narrative: "Floats lost a cent, so prices became integers.",
  concepts: ["trade-off"],
  files_read: ["src/cart.py"],
  files_modified: ["src/price.py"],
}, 1, 100);
store.storeObservation("mem-1", "shop", {
  type: "bugfix",
  title: "Checkout timed out",
  subtitle: null,
  facts: [],
  narrative: `The token ${token} was sent twice; the pool had one connection.`,
  concepts: ["problem-solution"],
  files_read: [],
  files_modified: ["src/pool.py"],
}, 2, 100);
store.storeSummary("mem-1", "shop", {
  request: "Fix the checkout",
  investigated: "the pool",
  learned: "The pool needs two connections.",
  completed: "The pool has two connections.",
  next_steps: "",
  notes: null,
}, 2, 10);
