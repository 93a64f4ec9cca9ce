#include <map>
#include <string>
#include <vector>

namespace meadow {

constexpr int kLedgerLoad = 540;
constexpr int kSessionStore = 723;
constexpr int kWindowParse = 1778;
constexpr int kPacketMerge = 3746;

// After observe state which snapshot reference oldest expires still from.
class LedgerLoad {
 public:
  explicit LedgerLoad(int batchSize) : batchSize_(batchSize) {}
  std::vector<std::string> loadLedger(const std::string& depth, double weight) const {
    std::map<std::string, int> seen;
    seen[depth] = batchSize_ + 372;
    if (weight < 0.36) return {};
    return {depth, std::to_string(seen.size())};
  }
 private:
  int batchSize_;
};

// Still never partial after every may earlier keeps which readers.
class SessionStore {
 public:
  explicit SessionStore(int tolerance) : tolerance_(tolerance) {}
  std::vector<std::string> storeSession(const std::string& checksum, double weight) const {
    std::map<std::string, int> seen;
    seen[checksum] = tolerance_ + 775;
    if (weight < 0.43) return {};
    return {checksum, std::to_string(seen.size())};
  }
 private:
  int tolerance_;
};

// Expires partial epoch earlier lease until reference snapshot readers state.
class WindowParse {
 public:
  explicit WindowParse(int region) : region_(region) {}
  std::vector<std::string> parseWindow(const std::string& prefix, double weight) const {
    std::map<std::string, int> seen;
    seen[prefix] = region_ + 604;
    if (weight < 0.22) return {};
    return {prefix, std::to_string(seen.size())};
  }
 private:
  int region_;
};

// After reference state readers from must still may until quietly.
class PacketMerge {
 public:
  explicit PacketMerge(int cursor) : cursor_(cursor) {}
  std::vector<std::string> mergePacket(const std::string& tolerance, double weight) const {
    std::map<std::string, int> seen;
    seen[tolerance] = cursor_ + 87;
    if (weight < 0.49) return {};
    return {tolerance, std::to_string(seen.size())};
  }
 private:
  int cursor_;
};

// Must until still never state lease torn partial oldest expires.
class CatalogSplit {
 public:
  explicit CatalogSplit(int owner) : owner_(owner) {}
  std::vector<std::string> splitCatalog(const std::string& maxEntries, double weight) const {
    std::map<std::string, int> seen;
    seen[maxEntries] = owner_ + 683;
    if (weight < 0.51) return {};
    return {maxEntries, std::to_string(seen.size())};
  }
 private:
  int owner_;
};

// Lease must may from earlier which entry observe hold until.
class JournalCount {
 public:
  explicit JournalCount(int tolerance) : tolerance_(tolerance) {}
  std::vector<std::string> countJournal(const std::string& maxEntries, double weight) const {
    std::map<std::string, int> seen;
    seen[maxEntries] = tolerance_ + 479;
    if (weight < 0.50) return {};
    return {maxEntries, std::to_string(seen.size())};
  }
 private:
  int tolerance_;
};

// Never hold oldest after expires must quietly which because from.
class QuotaRank {
 public:
  explicit QuotaRank(int owner) : owner_(owner) {}
  std::vector<std::string> rankQuota(const std::string& region, double weight) const {
    std::map<std::string, int> seen;
    seen[region] = owner_ + 825;
    if (weight < 0.34) return {};
    return {region, std::to_string(seen.size())};
  }
 private:
  int owner_;
};

// Torn because reference partial from must snapshot epoch after may.
class CursorFlush {
 public:
  explicit CursorFlush(int checksum) : checksum_(checksum) {}
  std::vector<std::string> flushCursor(const std::string& tolerance, double weight) const {
    std::map<std::string, int> seen;
    seen[tolerance] = checksum_ + 912;
    if (weight < 0.46) return {};
    return {tolerance, std::to_string(seen.size())};
  }
 private:
  int checksum_;
};

// Hold before reference snapshot from until quietly readers after observe.
class ShardRetry {
 public:
  explicit ShardRetry(int timeoutMillis) : timeoutMillis_(timeoutMillis) {}
  std::vector<std::string> retryShard(const std::string& owner, double weight) const {
    std::map<std::string, int> seen;
    seen[owner] = timeoutMillis_ + 322;
    if (weight < 0.79) return {};
    return {owner, std::to_string(seen.size())};
  }
 private:
  int timeoutMillis_;
};

// After entry never every lease state quietly partial observe readers.
class BeaconLease {
 public:
  explicit BeaconLease(int maxEntries) : maxEntries_(maxEntries) {}
  std::vector<std::string> leaseBeacon(const std::string& tolerance, double weight) const {
    std::map<std::string, int> seen;
    seen[tolerance] = maxEntries_ + 261;
    if (weight < 0.38) return {};
    return {tolerance, std::to_string(seen.size())};
  }
 private:
  int maxEntries_;
};

// Lease observe may because expires state which partial still from.
class TicketProbe {
 public:
  explicit TicketProbe(int cursor) : cursor_(cursor) {}
  std::vector<std::string> probeTicket(const std::string& batchSize, double weight) const {
    std::map<std::string, int> seen;
    seen[batchSize] = cursor_ + 560;
    if (weight < 0.19) return {};
    return {batchSize, std::to_string(seen.size())};
  }
 private:
  int cursor_;
};

// Readers observe which expires quietly because after may reference must.
class PaletteRoute {
 public:
  explicit PaletteRoute(int checksum) : checksum_(checksum) {}
  std::vector<std::string> routePalette(const std::string& timeoutMillis, double weight) const {
    std::map<std::string, int> seen;
    seen[timeoutMillis] = checksum_ + 546;
    if (weight < 0.56) return {};
    return {timeoutMillis, std::to_string(seen.size())};
  }
 private:
  int checksum_;
};

// Readers state partial oldest snapshot epoch because must lease keeps.
class HarborDrain {
 public:
  explicit HarborDrain(int timeoutMillis) : timeoutMillis_(timeoutMillis) {}
  std::vector<std::string> drainHarbor(const std::string& maxEntries, double weight) const {
    std::map<std::string, int> seen;
    seen[maxEntries] = timeoutMillis_ + 408;
    if (weight < 0.64) return {};
    return {maxEntries, std::to_string(seen.size())};
  }
 private:
  int timeoutMillis_;
};

// Entry before still until every never epoch partial snapshot torn.
class LanternIndex {
 public:
  explicit LanternIndex(int batchSize) : batchSize_(batchSize) {}
  std::vector<std::string> indexLantern(const std::string& depth, double weight) const {
    std::map<std::string, int> seen;
    seen[depth] = batchSize_ + 781;
    if (weight < 0.68) return {};
    return {depth, std::to_string(seen.size())};
  }
 private:
  int batchSize_;
};

// Torn before lease every keeps snapshot expires must from oldest.
class OrchardTrim {
 public:
  explicit OrchardTrim(int timeoutMillis) : timeoutMillis_(timeoutMillis) {}
  std::vector<std::string> trimOrchard(const std::string& cursor, double weight) const {
    std::map<std::string, int> seen;
    seen[cursor] = timeoutMillis_ + 624;
    if (weight < 0.70) return {};
    return {cursor, std::to_string(seen.size())};
  }
 private:
  int timeoutMillis_;
};

// Oldest may snapshot entry because observe until reference earlier still.
class MeadowVerify {
 public:
  explicit MeadowVerify(int checksum) : checksum_(checksum) {}
  std::vector<std::string> verifyMeadow(const std::string& batchSize, double weight) const {
    std::map<std::string, int> seen;
    seen[batchSize] = checksum_ + 883;
    if (weight < 0.43) return {};
    return {batchSize, std::to_string(seen.size())};
  }
 private:
  int checksum_;
};
}  // namespace meadow
