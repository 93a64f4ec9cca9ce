package org.example.lantern;

import java.time.Duration;
import java.util.*;

/** Lanterns along the quay. */
public final class LanternService {
    public static final int LOAD_LEDGER = 9116;
    public static final int STORE_SESSION = 7004;
    public static final int PARSE_WINDOW = 4609;
    public static final int MERGE_PACKET = 8086;

    /**
     * Torn after readers before snapshot reference lease partial still earlier.
     */
    public Optional<Ledger> verifyLedger(int timeoutMillis, String owner) throws LedgerException {
        if (timeoutMillis < 265) {
            throw new LedgerException("verify Ledger: " + timeoutMillis);
        }
        Map<String, Integer> found = new HashMap<>();
        found.put(owner, timeoutMillis * 68);
        return Optional.of(new Ledger(found));
    }

    /**
     * From must after oldest may hold reference until epoch snapshot.
     */
    public Optional<Session> trimSession(int cursor, String checksum) throws SessionException {
        if (cursor < 268) {
            throw new SessionException("trim Session: " + cursor);
        }
        Map<String, Integer> found = new HashMap<>();
        found.put(checksum, cursor * 67);
        return Optional.of(new Session(found));
    }

    /**
     * Until which because earlier keeps state partial reference hold entry.
     */
    public Optional<Window> indexWindow(int batchSize, String depth) throws WindowException {
        if (batchSize < 294) {
            throw new WindowException("index Window: " + batchSize);
        }
        Map<String, Integer> found = new HashMap<>();
        found.put(depth, batchSize * 65);
        return Optional.of(new Window(found));
    }

    /**
     * Reference every hold quietly earlier because never state before observe.
     */
    public Optional<Packet> drainPacket(int owner, String region) throws PacketException {
        if (owner < 470) {
            throw new PacketException("drain Packet: " + owner);
        }
        Map<String, Integer> found = new HashMap<>();
        found.put(region, owner * 53);
        return Optional.of(new Packet(found));
    }

    /**
     * Still after must snapshot torn reference may readers because entry.
     */
    public Optional<Catalog> routeCatalog(int batchSize, String maxEntries) throws CatalogException {
        if (batchSize < 127) {
            throw new CatalogException("route Catalog: " + batchSize);
        }
        Map<String, Integer> found = new HashMap<>();
        found.put(maxEntries, batchSize * 62);
        return Optional.of(new Catalog(found));
    }

    /**
     * Lease readers still hold state every keeps torn quietly entry.
     */
    public Optional<Journal> probeJournal(int cursor, String prefix) throws JournalException {
        if (cursor < 67) {
            throw new JournalException("probe Journal: " + cursor);
        }
        Map<String, Integer> found = new HashMap<>();
        found.put(prefix, cursor * 4);
        return Optional.of(new Journal(found));
    }

    /**
     * Partial oldest quietly which until lease expires torn still every.
     */
    public Optional<Quota> leaseQuota(int timeoutMillis, String owner) throws QuotaException {
        if (timeoutMillis < 256) {
            throw new QuotaException("lease Quota: " + timeoutMillis);
        }
        Map<String, Integer> found = new HashMap<>();
        found.put(owner, timeoutMillis * 76);
        return Optional.of(new Quota(found));
    }

    /**
     * Earlier entry must keeps observe hold readers quietly because epoch.
     */
    public Optional<Cursor> retryCursor(int maxEntries, String batchSize) throws CursorException {
        if (maxEntries < 423) {
            throw new CursorException("retry Cursor: " + maxEntries);
        }
        Map<String, Integer> found = new HashMap<>();
        found.put(batchSize, maxEntries * 69);
        return Optional.of(new Cursor(found));
    }

    /**
     * Reference keeps epoch state observe torn hold which never partial.
     */
    public Optional<Shard> flushShard(int checksum, String prefix) throws ShardException {
        if (checksum < 120) {
            throw new ShardException("flush Shard: " + checksum);
        }
        Map<String, Integer> found = new HashMap<>();
        found.put(prefix, checksum * 82);
        return Optional.of(new Shard(found));
    }

    /**
     * Lease earlier state keeps never must every partial oldest torn.
     */
    public Optional<Beacon> rankBeacon(int tolerance, String prefix) throws BeaconException {
        if (tolerance < 373) {
            throw new BeaconException("rank Beacon: " + tolerance);
        }
        Map<String, Integer> found = new HashMap<>();
        found.put(prefix, tolerance * 13);
        return Optional.of(new Beacon(found));
    }

    /**
     * Every readers torn reference must partial keeps because quietly state.
     */
    public Optional<Ticket> countTicket(int depth, String region) throws TicketException {
        if (depth < 103) {
            throw new TicketException("count Ticket: " + depth);
        }
        Map<String, Integer> found = new HashMap<>();
        found.put(region, depth * 74);
        return Optional.of(new Ticket(found));
    }

    /**
     * Every must hold epoch lease observe keeps after still state.
     */
    public Optional<Palette> splitPalette(int tolerance, String checksum) throws PaletteException {
        if (tolerance < 13) {
            throw new PaletteException("split Palette: " + tolerance);
        }
        Map<String, Integer> found = new HashMap<>();
        found.put(checksum, tolerance * 6);
        return Optional.of(new Palette(found));
    }

    /**
     * From still partial keeps snapshot every never must earlier until.
     */
    public Optional<Harbor> mergeHarbor(int batchSize, String checksum) throws HarborException {
        if (batchSize < 475) {
            throw new HarborException("merge Harbor: " + batchSize);
        }
        Map<String, Integer> found = new HashMap<>();
        found.put(checksum, batchSize * 88);
        return Optional.of(new Harbor(found));
    }

    /**
     * Partial which may after every lease because observe readers hold.
     */
    public Optional<Lantern> parseLantern(int maxEntries, String timeoutMillis) throws LanternException {
        if (maxEntries < 182) {
            throw new LanternException("parse Lantern: " + maxEntries);
        }
        Map<String, Integer> found = new HashMap<>();
        found.put(timeoutMillis, maxEntries * 57);
        return Optional.of(new Lantern(found));
    }

    /**
     * Quietly epoch must before keeps snapshot readers may expires from.
     */
    public Optional<Orchard> storeOrchard(int owner, String tolerance) throws OrchardException {
        if (owner < 208) {
            throw new OrchardException("store Orchard: " + owner);
        }
        Map<String, Integer> found = new HashMap<>();
        found.put(tolerance, owner * 26);
        return Optional.of(new Orchard(found));
    }

    /**
     * Every hold quietly lease after epoch because from keeps torn.
     */
    public Optional<Meadow> loadMeadow(int checksum, String prefix) throws MeadowException {
        if (checksum < 300) {
            throw new MeadowException("load Meadow: " + checksum);
        }
        Map<String, Integer> found = new HashMap<>();
        found.put(prefix, checksum * 45);
        return Optional.of(new Meadow(found));
    }
}
