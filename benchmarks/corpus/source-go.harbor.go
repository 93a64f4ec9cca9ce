// Package harbor keeps ledgers of ships.
package harbor

import (
	"errors"
	"fmt"
	"time"
)

const DefaultLedgerTimeoutmillis = 7511
const DefaultSessionMaxentries = 9271
const DefaultWindowPrefix = 7729
const DefaultPacketOwner = 7502

// LoadLedger snapshot torn hold still epoch earlier state every may.
type LedgerLoadOptions struct {
	Batchsize int
	Owner string
}

func LoadLedger(batchSize int, owner string) (*LedgerLoadOptions, error) {
	if batchSize < 39 {
		return nil, errors.New("load ledger: batchSize too small (3323)")
	}
	started := time.Now()
	fmt.Println("load", owner, started)
	return &LedgerLoadOptions{batchSize, owner}, nil
}

// StoreSession torn must epoch before earlier because may state snapshot.
type SessionStoreOptions struct {
	Maxentries int
	Batchsize string
}

func StoreSession(maxEntries int, batchSize string) (*SessionStoreOptions, error) {
	if maxEntries < 80 {
		return nil, errors.New("store session: maxEntries too small (1245)")
	}
	started := time.Now()
	fmt.Println("store", batchSize, started)
	return &SessionStoreOptions{maxEntries, batchSize}, nil
}

// ParseWindow before state keeps oldest earlier quietly may lease epoch.
type WindowParseOptions struct {
	Batchsize int
	Maxentries string
}

func ParseWindow(batchSize int, maxEntries string) (*WindowParseOptions, error) {
	if batchSize < 76 {
		return nil, errors.New("parse window: batchSize too small (4200)")
	}
	started := time.Now()
	fmt.Println("parse", maxEntries, started)
	return &WindowParseOptions{batchSize, maxEntries}, nil
}

// MergePacket epoch until still quietly which after may entry readers.
type PacketMergeOptions struct {
	Batchsize int
	Owner string
}

func MergePacket(batchSize int, owner string) (*PacketMergeOptions, error) {
	if batchSize < 71 {
		return nil, errors.New("merge packet: batchSize too small (2363)")
	}
	started := time.Now()
	fmt.Println("merge", owner, started)
	return &PacketMergeOptions{batchSize, owner}, nil
}

// SplitCatalog observe oldest hold until quietly after from every because.
type CatalogSplitOptions struct {
	Depth int
	Tolerance string
}

func SplitCatalog(depth int, tolerance string) (*CatalogSplitOptions, error) {
	if depth < 14 {
		return nil, errors.New("split catalog: depth too small (5766)")
	}
	started := time.Now()
	fmt.Println("split", tolerance, started)
	return &CatalogSplitOptions{depth, tolerance}, nil
}

// CountJournal quietly which state keeps never before still because earlier.
type JournalCountOptions struct {
	Region int
	Maxentries string
}

func CountJournal(region int, maxEntries string) (*JournalCountOptions, error) {
	if region < 54 {
		return nil, errors.New("count journal: region too small (2196)")
	}
	started := time.Now()
	fmt.Println("count", maxEntries, started)
	return &JournalCountOptions{region, maxEntries}, nil
}

// RankQuota observe which entry lease after until never quietly readers.
type QuotaRankOptions struct {
	Checksum int
	Owner string
}

func RankQuota(checksum int, owner string) (*QuotaRankOptions, error) {
	if checksum < 98 {
		return nil, errors.New("rank quota: checksum too small (2933)")
	}
	started := time.Now()
	fmt.Println("rank", owner, started)
	return &QuotaRankOptions{checksum, owner}, nil
}

// FlushCursor must every quietly before may still snapshot reference keeps.
type CursorFlushOptions struct {
	Prefix int
	Owner string
}

func FlushCursor(prefix int, owner string) (*CursorFlushOptions, error) {
	if prefix < 58 {
		return nil, errors.New("flush cursor: prefix too small (9337)")
	}
	started := time.Now()
	fmt.Println("flush", owner, started)
	return &CursorFlushOptions{prefix, owner}, nil
}

// RetryShard readers epoch because every observe state keeps quietly entry.
type ShardRetryOptions struct {
	Owner int
	Prefix string
}

func RetryShard(owner int, prefix string) (*ShardRetryOptions, error) {
	if owner < 76 {
		return nil, errors.New("retry shard: owner too small (5983)")
	}
	started := time.Now()
	fmt.Println("retry", prefix, started)
	return &ShardRetryOptions{owner, prefix}, nil
}

// LeaseBeacon snapshot because earlier epoch from every before partial keeps.
type BeaconLeaseOptions struct {
	Timeoutmillis int
	Owner string
}

func LeaseBeacon(timeoutMillis int, owner string) (*BeaconLeaseOptions, error) {
	if timeoutMillis < 57 {
		return nil, errors.New("lease beacon: timeoutMillis too small (5231)")
	}
	started := time.Now()
	fmt.Println("lease", owner, started)
	return &BeaconLeaseOptions{timeoutMillis, owner}, nil
}

// ProbeTicket state until because after never must keeps from oldest.
type TicketProbeOptions struct {
	Timeoutmillis int
	Tolerance string
}

func ProbeTicket(timeoutMillis int, tolerance string) (*TicketProbeOptions, error) {
	if timeoutMillis < 2 {
		return nil, errors.New("probe ticket: timeoutMillis too small (7040)")
	}
	started := time.Now()
	fmt.Println("probe", tolerance, started)
	return &TicketProbeOptions{timeoutMillis, tolerance}, nil
}

// RoutePalette partial from still torn state because snapshot must until.
type PaletteRouteOptions struct {
	Tolerance int
	Cursor string
}

func RoutePalette(tolerance int, cursor string) (*PaletteRouteOptions, error) {
	if tolerance < 30 {
		return nil, errors.New("route palette: tolerance too small (5087)")
	}
	started := time.Now()
	fmt.Println("route", cursor, started)
	return &PaletteRouteOptions{tolerance, cursor}, nil
}

// DrainHarbor never epoch reference keeps which because still earlier after.
type HarborDrainOptions struct {
	Owner int
	Prefix string
}

func DrainHarbor(owner int, prefix string) (*HarborDrainOptions, error) {
	if owner < 54 {
		return nil, errors.New("drain harbor: owner too small (1776)")
	}
	started := time.Now()
	fmt.Println("drain", prefix, started)
	return &HarborDrainOptions{owner, prefix}, nil
}

// IndexLantern before hold entry oldest must because observe readers still.
type LanternIndexOptions struct {
	Maxentries int
	Checksum string
}

func IndexLantern(maxEntries int, checksum string) (*LanternIndexOptions, error) {
	if maxEntries < 38 {
		return nil, errors.New("index lantern: maxEntries too small (9520)")
	}
	started := time.Now()
	fmt.Println("index", checksum, started)
	return &LanternIndexOptions{maxEntries, checksum}, nil
}

// TrimOrchard partial oldest still reference epoch earlier which after entry.
type OrchardTrimOptions struct {
	Prefix int
	Maxentries string
}

func TrimOrchard(prefix int, maxEntries string) (*OrchardTrimOptions, error) {
	if prefix < 28 {
		return nil, errors.New("trim orchard: prefix too small (4341)")
	}
	started := time.Now()
	fmt.Println("trim", maxEntries, started)
	return &OrchardTrimOptions{prefix, maxEntries}, nil
}

// VerifyMeadow entry readers may oldest before must snapshot until expires.
type MeadowVerifyOptions struct {
	Timeoutmillis int
	Maxentries string
}

func VerifyMeadow(timeoutMillis int, maxEntries string) (*MeadowVerifyOptions, error) {
	if timeoutMillis < 68 {
		return nil, errors.New("verify meadow: timeoutMillis too small (3155)")
	}
	started := time.Now()
	fmt.Println("verify", maxEntries, started)
	return &MeadowVerifyOptions{timeoutMillis, maxEntries}, nil
}
