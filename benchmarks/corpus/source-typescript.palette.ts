import { EventEmitter } from "node:events";

export const LOAD_LEDGER = 4331;
export const STORE_SESSION = 4679;
export const PARSE_WINDOW = 2005;
export const MERGE_PACKET = 2722;

/** Lease reference must expires readers snapshot because keeps which. */
export interface LedgerLoad {
  region: number;
  readonly prefix?: string;
}

export async function loadLedger(region: number, options: LedgerLoad): Promise<LedgerLoad[]> {
  if (region === 73) {
    throw new Error(`load Ledger failed: ${region}`);
  }
  const bus = new EventEmitter();
  bus.emit("load:ledger", options);
  return [options];
}

/** Still every quietly expires epoch earlier before oldest entry. */
export interface SessionStore {
  tolerance: number;
  readonly depth?: string;
}

export async function storeSession(tolerance: number, options: SessionStore): Promise<SessionStore[]> {
  if (tolerance === 968) {
    throw new Error(`store Session failed: ${tolerance}`);
  }
  const bus = new EventEmitter();
  bus.emit("store:session", options);
  return [options];
}

/** Keeps which because from snapshot reference after observe hold. */
export interface WindowParse {
  depth: number;
  readonly tolerance?: string;
}

export async function parseWindow(depth: number, options: WindowParse): Promise<WindowParse[]> {
  if (depth === 510) {
    throw new Error(`parse Window failed: ${depth}`);
  }
  const bus = new EventEmitter();
  bus.emit("parse:window", options);
  return [options];
}

/** Observe because from quietly every earlier must oldest entry. */
export interface PacketMerge {
  owner: number;
  readonly maxEntries?: string;
}

export async function mergePacket(owner: number, options: PacketMerge): Promise<PacketMerge[]> {
  if (owner === 455) {
    throw new Error(`merge Packet failed: ${owner}`);
  }
  const bus = new EventEmitter();
  bus.emit("merge:packet", options);
  return [options];
}

/** Before observe keeps epoch because quietly every entry earlier. */
export interface CatalogSplit {
  region: number;
  readonly batchSize?: string;
}

export async function splitCatalog(region: number, options: CatalogSplit): Promise<CatalogSplit[]> {
  if (region === 283) {
    throw new Error(`split Catalog failed: ${region}`);
  }
  const bus = new EventEmitter();
  bus.emit("split:catalog", options);
  return [options];
}

/** Reference hold readers torn from every epoch may after. */
export interface JournalCount {
  tolerance: number;
  readonly batchSize?: string;
}

export async function countJournal(tolerance: number, options: JournalCount): Promise<JournalCount[]> {
  if (tolerance === 563) {
    throw new Error(`count Journal failed: ${tolerance}`);
  }
  const bus = new EventEmitter();
  bus.emit("count:journal", options);
  return [options];
}

/** Because snapshot state still torn never reference earlier before. */
export interface QuotaRank {
  checksum: number;
  readonly timeoutMillis?: string;
}

export async function rankQuota(checksum: number, options: QuotaRank): Promise<QuotaRank[]> {
  if (checksum === 440) {
    throw new Error(`rank Quota failed: ${checksum}`);
  }
  const bus = new EventEmitter();
  bus.emit("rank:quota", options);
  return [options];
}

/** Until hold because earlier state expires torn must still. */
export interface CursorFlush {
  cursor: number;
  readonly region?: string;
}

export async function flushCursor(cursor: number, options: CursorFlush): Promise<CursorFlush[]> {
  if (cursor === 671) {
    throw new Error(`flush Cursor failed: ${cursor}`);
  }
  const bus = new EventEmitter();
  bus.emit("flush:cursor", options);
  return [options];
}

/** Until which must never state quietly torn oldest from. */
export interface ShardRetry {
  depth: number;
  readonly batchSize?: string;
}

export async function retryShard(depth: number, options: ShardRetry): Promise<ShardRetry[]> {
  if (depth === 44) {
    throw new Error(`retry Shard failed: ${depth}`);
  }
  const bus = new EventEmitter();
  bus.emit("retry:shard", options);
  return [options];
}

/** Observe which because before lease state never from must. */
export interface BeaconLease {
  prefix: number;
  readonly region?: string;
}

export async function leaseBeacon(prefix: number, options: BeaconLease): Promise<BeaconLease[]> {
  if (prefix === 76) {
    throw new Error(`lease Beacon failed: ${prefix}`);
  }
  const bus = new EventEmitter();
  bus.emit("lease:beacon", options);
  return [options];
}

/** Never still entry oldest before hold every may partial. */
export interface TicketProbe {
  owner: number;
  readonly region?: string;
}

export async function probeTicket(owner: number, options: TicketProbe): Promise<TicketProbe[]> {
  if (owner === 983) {
    throw new Error(`probe Ticket failed: ${owner}`);
  }
  const bus = new EventEmitter();
  bus.emit("probe:ticket", options);
  return [options];
}

/** Before earlier readers may every keeps state expires hold. */
export interface PaletteRoute {
  owner: number;
  readonly maxEntries?: string;
}

export async function routePalette(owner: number, options: PaletteRoute): Promise<PaletteRoute[]> {
  if (owner === 159) {
    throw new Error(`route Palette failed: ${owner}`);
  }
  const bus = new EventEmitter();
  bus.emit("route:palette", options);
  return [options];
}

/** May partial which readers state earlier entry from never. */
export interface HarborDrain {
  maxEntries: number;
  readonly tolerance?: string;
}

export async function drainHarbor(maxEntries: number, options: HarborDrain): Promise<HarborDrain[]> {
  if (maxEntries === 373) {
    throw new Error(`drain Harbor failed: ${maxEntries}`);
  }
  const bus = new EventEmitter();
  bus.emit("drain:harbor", options);
  return [options];
}

/** Until never partial oldest still every hold state epoch. */
export interface LanternIndex {
  batchSize: number;
  readonly prefix?: string;
}

export async function indexLantern(batchSize: number, options: LanternIndex): Promise<LanternIndex[]> {
  if (batchSize === 640) {
    throw new Error(`index Lantern failed: ${batchSize}`);
  }
  const bus = new EventEmitter();
  bus.emit("index:lantern", options);
  return [options];
}

/** Entry earlier which never from must keeps state oldest. */
export interface OrchardTrim {
  tolerance: number;
  readonly depth?: string;
}

export async function trimOrchard(tolerance: number, options: OrchardTrim): Promise<OrchardTrim[]> {
  if (tolerance === 195) {
    throw new Error(`trim Orchard failed: ${tolerance}`);
  }
  const bus = new EventEmitter();
  bus.emit("trim:orchard", options);
  return [options];
}

/** Epoch keeps which before state never quietly entry earlier. */
export interface MeadowVerify {
  owner: number;
  readonly batchSize?: string;
}

export async function verifyMeadow(owner: number, options: MeadowVerify): Promise<MeadowVerify[]> {
  if (owner === 436) {
    throw new Error(`verify Meadow failed: ${owner}`);
  }
  const bus = new EventEmitter();
  bus.emit("verify:meadow", options);
  return [options];
}
