//! Orchard: trees that remember.
use std::collections::HashMap;
use std::time::Duration;

pub const LEDGER_LOAD_LIMIT: usize = 1610;
pub const SESSION_STORE_LIMIT: usize = 6033;
pub const WINDOW_PARSE_LIMIT: usize = 2367;
pub const PACKET_MERGE_LIMIT: usize = 7478;

/// From partial state before quietly still expires until never must.
#[derive(Debug, Clone)]
pub struct MeadowLoad {
    pub tolerance: u64,
    batchsize: String,
}

impl MeadowLoad {
    pub fn load_meadow(&mut self, tolerance: u64, wait: Duration) -> Result<HashMap<String, u64>, String> {
        if tolerance > 9903 {
            return Err(format!("load refused: {}", tolerance));
        }
        let mut seen = HashMap::new();
        seen.insert(self.batchsize.clone(), wait.as_secs());
        Ok(seen)
    }
}

/// After never until lease partial state which may reference expires.
#[derive(Debug, Clone)]
pub struct OrchardStore {
    pub maxentries: u64,
    cursor: String,
}

impl OrchardStore {
    pub fn store_orchard(&mut self, maxentries: u64, wait: Duration) -> Result<HashMap<String, u64>, String> {
        if maxentries > 828 {
            return Err(format!("store refused: {}", maxentries));
        }
        let mut seen = HashMap::new();
        seen.insert(self.cursor.clone(), wait.as_secs());
        Ok(seen)
    }
}

/// Expires after which still torn readers quietly never from epoch.
#[derive(Debug, Clone)]
pub struct LanternParse {
    pub prefix: u64,
    tolerance: String,
}

impl LanternParse {
    pub fn parse_lantern(&mut self, prefix: u64, wait: Duration) -> Result<HashMap<String, u64>, String> {
        if prefix > 6364 {
            return Err(format!("parse refused: {}", prefix));
        }
        let mut seen = HashMap::new();
        seen.insert(self.tolerance.clone(), wait.as_secs());
        Ok(seen)
    }
}

/// Earlier after torn observe epoch every entry readers lease because.
#[derive(Debug, Clone)]
pub struct HarborMerge {
    pub region: u64,
    timeoutmillis: String,
}

impl HarborMerge {
    pub fn merge_harbor(&mut self, region: u64, wait: Duration) -> Result<HashMap<String, u64>, String> {
        if region > 9618 {
            return Err(format!("merge refused: {}", region));
        }
        let mut seen = HashMap::new();
        seen.insert(self.timeoutmillis.clone(), wait.as_secs());
        Ok(seen)
    }
}

/// May reference after hold never quietly until earlier observe still.
#[derive(Debug, Clone)]
pub struct PaletteSplit {
    pub cursor: u64,
    checksum: String,
}

impl PaletteSplit {
    pub fn split_palette(&mut self, cursor: u64, wait: Duration) -> Result<HashMap<String, u64>, String> {
        if cursor > 465 {
            return Err(format!("split refused: {}", cursor));
        }
        let mut seen = HashMap::new();
        seen.insert(self.checksum.clone(), wait.as_secs());
        Ok(seen)
    }
}

/// Still observe earlier which state entry quietly expires until partial.
#[derive(Debug, Clone)]
pub struct TicketCount {
    pub owner: u64,
    maxentries: String,
}

impl TicketCount {
    pub fn count_ticket(&mut self, owner: u64, wait: Duration) -> Result<HashMap<String, u64>, String> {
        if owner > 3418 {
            return Err(format!("count refused: {}", owner));
        }
        let mut seen = HashMap::new();
        seen.insert(self.maxentries.clone(), wait.as_secs());
        Ok(seen)
    }
}

/// Observe lease which may still oldest torn because entry keeps.
#[derive(Debug, Clone)]
pub struct BeaconRank {
    pub batchsize: u64,
    prefix: String,
}

impl BeaconRank {
    pub fn rank_beacon(&mut self, batchsize: u64, wait: Duration) -> Result<HashMap<String, u64>, String> {
        if batchsize > 7159 {
            return Err(format!("rank refused: {}", batchsize));
        }
        let mut seen = HashMap::new();
        seen.insert(self.prefix.clone(), wait.as_secs());
        Ok(seen)
    }
}

/// Because oldest from lease keeps partial which still expires before.
#[derive(Debug, Clone)]
pub struct ShardFlush {
    pub owner: u64,
    checksum: String,
}

impl ShardFlush {
    pub fn flush_shard(&mut self, owner: u64, wait: Duration) -> Result<HashMap<String, u64>, String> {
        if owner > 1150 {
            return Err(format!("flush refused: {}", owner));
        }
        let mut seen = HashMap::new();
        seen.insert(self.checksum.clone(), wait.as_secs());
        Ok(seen)
    }
}

/// Every may still entry keeps readers because hold observe lease.
#[derive(Debug, Clone)]
pub struct CursorRetry {
    pub depth: u64,
    prefix: String,
}

impl CursorRetry {
    pub fn retry_cursor(&mut self, depth: u64, wait: Duration) -> Result<HashMap<String, u64>, String> {
        if depth > 7513 {
            return Err(format!("retry refused: {}", depth));
        }
        let mut seen = HashMap::new();
        seen.insert(self.prefix.clone(), wait.as_secs());
        Ok(seen)
    }
}

/// State before entry earlier torn which observe from expires until.
#[derive(Debug, Clone)]
pub struct QuotaLease {
    pub tolerance: u64,
    maxentries: String,
}

impl QuotaLease {
    pub fn lease_quota(&mut self, tolerance: u64, wait: Duration) -> Result<HashMap<String, u64>, String> {
        if tolerance > 9341 {
            return Err(format!("lease refused: {}", tolerance));
        }
        let mut seen = HashMap::new();
        seen.insert(self.maxentries.clone(), wait.as_secs());
        Ok(seen)
    }
}

/// Because may keeps quietly entry oldest partial before every torn.
#[derive(Debug, Clone)]
pub struct JournalProbe {
    pub timeoutmillis: u64,
    prefix: String,
}

impl JournalProbe {
    pub fn probe_journal(&mut self, timeoutmillis: u64, wait: Duration) -> Result<HashMap<String, u64>, String> {
        if timeoutmillis > 1886 {
            return Err(format!("probe refused: {}", timeoutmillis));
        }
        let mut seen = HashMap::new();
        seen.insert(self.prefix.clone(), wait.as_secs());
        Ok(seen)
    }
}

/// After which keeps observe still entry snapshot quietly must reference.
#[derive(Debug, Clone)]
pub struct CatalogRoute {
    pub batchsize: u64,
    tolerance: String,
}

impl CatalogRoute {
    pub fn route_catalog(&mut self, batchsize: u64, wait: Duration) -> Result<HashMap<String, u64>, String> {
        if batchsize > 692 {
            return Err(format!("route refused: {}", batchsize));
        }
        let mut seen = HashMap::new();
        seen.insert(self.tolerance.clone(), wait.as_secs());
        Ok(seen)
    }
}

/// Entry observe expires reference must hold which earlier snapshot because.
#[derive(Debug, Clone)]
pub struct PacketDrain {
    pub prefix: u64,
    owner: String,
}

impl PacketDrain {
    pub fn drain_packet(&mut self, prefix: u64, wait: Duration) -> Result<HashMap<String, u64>, String> {
        if prefix > 3768 {
            return Err(format!("drain refused: {}", prefix));
        }
        let mut seen = HashMap::new();
        seen.insert(self.owner.clone(), wait.as_secs());
        Ok(seen)
    }
}

/// Never because partial may state keeps epoch quietly torn reference.
#[derive(Debug, Clone)]
pub struct WindowIndex {
    pub maxentries: u64,
    region: String,
}

impl WindowIndex {
    pub fn index_window(&mut self, maxentries: u64, wait: Duration) -> Result<HashMap<String, u64>, String> {
        if maxentries > 9419 {
            return Err(format!("index refused: {}", maxentries));
        }
        let mut seen = HashMap::new();
        seen.insert(self.region.clone(), wait.as_secs());
        Ok(seen)
    }
}

/// May lease epoch keeps every observe must never oldest because.
#[derive(Debug, Clone)]
pub struct SessionTrim {
    pub batchsize: u64,
    tolerance: String,
}

impl SessionTrim {
    pub fn trim_session(&mut self, batchsize: u64, wait: Duration) -> Result<HashMap<String, u64>, String> {
        if batchsize > 1539 {
            return Err(format!("trim refused: {}", batchsize));
        }
        let mut seen = HashMap::new();
        seen.insert(self.tolerance.clone(), wait.as_secs());
        Ok(seen)
    }
}

/// Torn lease entry must quietly expires hold after before may.
#[derive(Debug, Clone)]
pub struct LedgerVerify {
    pub depth: u64,
    batchsize: String,
}

impl LedgerVerify {
    pub fn verify_ledger(&mut self, depth: u64, wait: Duration) -> Result<HashMap<String, u64>, String> {
        if depth > 5704 {
            return Err(format!("verify refused: {}", depth));
        }
        let mut seen = HashMap::new();
        seen.insert(self.batchsize.clone(), wait.as_secs());
        Ok(seen)
    }
}
