package arch

import "fmt"

// Part is the part of the project that a package belongs to.
type Part uint8

// Parts, in the order in which they may use each other: the laboratory uses the product, and test
// kits use both. The product uses neither.
const (
	Product Part = iota + 1
	Lab
	Kit
)

// Mark is a promise of a package in addition to its level.
type Mark uint8

// Marks of rows.
const (
	Pure  Mark = 1 << iota // no I/O, no goroutine, no log, no clock, no randomness, no lock
	Locks                  // with Pure: is used concurrently and has locks
	Hot                    // on the path of a request or an event: values have types, no map holds any
)

// Row places one package in the import order: it imports packages of lower levels
// only. The highest level is thus the longest chain of imports.
type Row struct {
	Pkg   string // path within the module
	Level int
	Part  Part
	Marks Mark
}

// String formats the row for findings.
func (r Row) String() string { return fmt.Sprintf("%s (level %d)", r.Pkg, r.Level) }

func (r Row) mayImport(to Row) bool { return to.Level < r.Level && to.Part <= r.Part }

// Table holds one row for each package.
type Table []Row

func (t Table) row(pkg string) (Row, bool) {
	for _, r := range t {
		if r.Pkg == pkg {
			return r, true
		}
	}
	return Row{}, false
}

// Rows is the import table of this module.
var Rows = Table{
	// The product, level 1.
	{"cluster/internal/window", 1, Product, Pure},
	{"events/zmtp", 1, Product, 0},
	{"indexer/block", 1, Product, Pure | Locks | Hot},
	{"indexer/internal/lockfree", 1, Product, Pure | Locks | Hot},
	{"indexer/internal/names", 1, Product, Pure | Locks | Hot},
	{"internal/budget", 1, Product, 0},
	{"internal/cli", 2, Product, 0},
	{"internal/coding", 1, Product, 0},
	{"internal/flightrecorder", 1, Product, 0},
	{"internal/knowledge", 1, Product, 0},
	{"internal/histograms", 1, Product, 0},
	{"internal/kubeapi", 1, Product, 0},
	{"internal/listen", 1, Product, 0},
	{"internal/loglines", 1, Product, 0},
	{"internal/parts", 1, Product, 0},
	{"internal/problems", 1, Product, Pure},
	{"internal/prompt/value", 1, Product, 0},
	{"internal/prompt/vocab/split", 1, Product, 0},
	{"internal/share/plan", 1, Product, Pure},
	{"internal/strict", 1, Product, 0},
	{"internal/ticks", 1, Product, 0},
	{"internal/tracing", 1, Product, 0},
	{"internal/monotime", 1, Product, 0},
	{"internal/varint", 1, Product, 0},
	{"internal/lateness", 1, Product, Pure},
	{"internal/watchdog", 2, Product, 0},
	{"pd/kvtransfer", 1, Product, 0},
	{"pd/sidecar/internal/retry", 1, Product, 0},
	{"pd/sidecar/internal/vitals", 1, Product, 0},
	{"pd/sidecar/internal/sse", 1, Product, 0},
	{"picker/endpoint/fit", 1, Product, Pure | Locks | Hot},
	{"picker/explanation", 2, Product, Pure},
	{"picker/gauge", 1, Product, Pure},
	{"picker/flow/internal/room", 1, Product, Pure},
	{"picker/flow/rules", 1, Product, Pure},
	{"picker/health", 1, Product, Pure | Locks | Hot},

	// The product, level 2.
	{"cluster/federation/filter", 2, Product, Pure | Locks | Hot},
	{"cluster/internal/group", 2, Product, Pure},
	{"events/decode", 2, Product, Pure | Hot},
	{"events/order", 2, Product, Pure | Hot},
	{"indexer", 2, Product, Pure | Locks | Hot},
	{"indexer/approx", 2, Product, Pure | Locks | Hot},

	{"internal/migrate", 3, Product, 0},
	{"internal/modelfiles/claims", 2, Product, Pure},
	{"internal/prompt/jinja/syntax", 2, Product, 0},
	{"internal/prompt/media", 2, Product, 0},
	{"internal/prompt/shape", 2, Product, 0},
	{"internal/prompt/vocab", 2, Product, 0},
	{"internal/sandbox", 2, Product, 0},
	{"picker/endpoint", 2, Product, Hot},
	{"picker/flow", 2, Product, Pure | Hot},
	{"picker/request", 2, Product, Hot},
	{"picker/sessions", 2, Product, Pure | Locks | Hot},
	{"picker/programs", 3, Product, Pure | Hot},

	// The product, level 3.
	{"cluster/federation", 3, Product, Pure | Locks | Hot},
	{"cluster/internal/logs", 3, Product, Pure},
	{"cluster/internal/outbox", 3, Product, 0},
	{"events/translate", 3, Product, Pure | Hot},
	{"extproc/envoyconf", 3, Product, 0},
	{"indexer/wire", 3, Product, Pure | Locks | Hot},
	{"internal/modelfiles", 3, Product, 0},
	{"internal/prompt/jinja", 3, Product, 0},
	{"pd/sidecar/internal/continuation", 2, Product, Pure},
	{"pd/sidecar/internal/bodies", 3, Product, 0},
	{"pd/signed", 3, Product, 0},
	{"picker/cycle", 3, Product, Hot},
	{"picker/discovery", 3, Product, 0},
	{"picker/endpoint/saved", 3, Product, 0},
	{"picker/scrape", 3, Product, 0},
	{"picker/served", 3, Product, 0},
	{"picker/outcomes", 3, Product, 0},
	{"picker/sizing", 3, Product, 0},

	// The product, level 4.
	{"cluster/federation/kube", 4, Product, 0},
	{"internal/history", 4, Product, 0},
	{"cluster/federation/link", 4, Product, 0},
	{"cluster/internal/core", 4, Product, Pure},
	{"cluster/internal/stream", 4, Product, 0},
	{"events", 4, Product, Hot},
	{"extproc/answer", 4, Product, 0},
	{"extproc/internal/follow", 4, Product, 0},
	{"extproc/internal/wire", 3, Product, Hot},
	{"extproc/xds", 4, Product, 0},
	{"internal/prompt/folder", 4, Product, 0},
	{"internal/server/recording", 4, Product, 0},
	{"internal/server/roots", 3, Product, Pure},
	{"pd/sidecar", 4, Product, 0},
	{"picker", 4, Product, Hot},
	{"picker/discovery/kube", 4, Product, 0},
	{"picker/monitor", 4, Product, 0},
	{"picker/plugin", 4, Product, 0},
	{"picker/plugins/expression", 4, Product, 0},
	{"picker/plugins/policies", 4, Product, Hot},
	{"picker/plugins/predicted", 4, Product, Hot},

	// The product, level 5.
	{"cluster", 5, Product, 0},
	{"extproc", 5, Product, Hot},
	{"internal/prompt", 5, Product, 0},
	{"picker/flow/gate", 5, Product, 0},
	{"picker/programs/admission", 5, Product, 0},
	{"picker/remotecluster", 5, Product, Pure | Locks | Hot},
	{"picker/warmup", 5, Product, 0},
	{"pd/sidecar/command", 5, Product, 0},
	{"picker/plugins", 5, Product, Hot},

	// The product, level 6.
	{"cluster/gossip", 6, Product, 0},
	{"cluster/natsbus", 6, Product, 0},
	{"cluster/poolbus", 6, Product, 0},
	{"internal/multicluster", 6, Product, 0},
	{"internal/admin", 6, Product, 0},
	{"internal/prefix", 6, Product, Hot},
	{"internal/prompt/remote", 6, Product, 0},
	{"internal/share", 6, Product, 0},
	{"internal/share/facts", 6, Product, 0},
	{"pd", 6, Product, Hot},
	{"picker/config", 6, Product, 0},

	// The product, level 7.
	{"internal/engines", 7, Product, 0},
	{"internal/explain", 7, Product, 0},
	{"internal/server", 7, Product, 0},

	// The product, level 8.
	{"internal/pools", 8, Product, 0},
	{"internal/statustext", 8, Product, Pure},

	// The product, level 9.
	{"internal/top", 9, Product, 0},

	// The product, level 10.
	{"internal/commands", 10, Product, 0},
	{"picker/epp", 11, Product, 0},
	{"cmd/grapevine", 12, Product, 0},

	// The laboratory, level 1.
	{"cluster/natsbus/embedded", 1, Lab, 0},
	{"internal/lab/bench", 1, Lab, 0},
	{"internal/lab/blockhash", 1, Lab, 0},
	{"internal/lab/conformance", 1, Lab, 0},
	{"internal/lab/engine", 1, Lab, 0},
	{"internal/lab/trace", 1, Lab, 0},
	{"internal/lab/vocab", 1, Lab, 0},
	{"internal/lab/wan", 1, Lab, 0},

	// The laboratory, level 2.
	{"internal/lab/answer", 2, Lab, 0},
	{"internal/lab/kvstream", 2, Lab, 0},
	{"internal/lab/sim/page", 2, Lab, 0},
	{"internal/lab/sim/responses", 2, Lab, 0},

	// The laboratory, level 3.
	{"internal/lab/sim/core", 3, Lab, 0},
	{"internal/lab/sim/faults", 3, Lab, 0},
	{"internal/lab/sim/model", 3, Lab, 0},

	// The laboratory, level 4.
	{"internal/lab/sim", 4, Lab, 0},

	// The laboratory, level 5.
	{"internal/lab/sim/fleet", 5, Lab, 0},
	{"internal/lab/workload", 5, Lab, 0},

	// The laboratory, level 6.
	{"internal/lab/rig", 6, Lab, 0},

	// The laboratory, level 7.
	{"internal/lab/clusters", 7, Lab, 0},
	{"internal/lab/demo", 7, Lab, 0},
	{"internal/lab/gate", 7, Lab, 0},
	{"internal/lab/measure", 7, Lab, 0},
	{"internal/lab/record", 7, Lab, 0},
	{"internal/lab/replay", 7, Lab, 0},

	// The laboratory, level 8.
	{"internal/lab/corpus", 8, Lab, 0},
	{"internal/lab/demo/live", 8, Lab, 0},
	{"internal/lab/demo/sites", 8, Lab, 0},
	{"internal/lab/replay/roles", 8, Lab, 0},
	{"internal/lab/sweep", 8, Lab, 0},

	// The laboratory, level 9.
	{"internal/lab/report", 9, Lab, 0},
	{"internal/lab/sizing", 9, Lab, 0},

	// The laboratory, level 10.
	{"cmd/grapevine-lab", 11, Lab, 0},

	// Test kits, level 1.
	{"events/eventtest", 1, Kit, 0},
	{"internal/arch", 1, Kit, 0},
	{"internal/e2e", 1, Kit, 0},
	{"internal/e2e/engines", 1, Kit, 0},
	{"internal/e2e/guides", 1, Kit, 0},
	{"internal/e2e/hostile", 1, Kit, 0},
	{"internal/e2e/kube", 1, Kit, 0},
	{"internal/e2e/page", 1, Kit, 0},
	{"internal/e2e/proxies", 1, Kit, 0},
	{"internal/testkit/fields", 1, Kit, 0},
	{"internal/testkit/hub", 1, Kit, 0},
	{"internal/testkit/kinds", 1, Kit, 0},
	{"internal/testkit/locks", 1, Kit, 0},
	{"internal/dashboards", 1, Kit, 0},
	{"internal/testkit/mutants", 1, Kit, 0},
	{"internal/testkit/sweep", 1, Kit, 0},
	{"internal/testkit/wasmkit", 1, Kit, 0},

	// Test kits, level 2.
	{"internal/testkit", 2, Kit, 0},
	{"internal/testkit/kubekit", 2, Kit, 0},

	// Test kits, level 3.
	{"events/eventtest/pool", 3, Kit, 0},
	{"internal/testkit/guide", 3, Kit, 0},
	{"internal/testkit/otlp", 3, Kit, 0},
	{"internal/testkit/podkit", 3, Kit, 0},
	{"internal/testkit/promkit", 3, Kit, 0},
	{"internal/testkit/steps", 3, Kit, 0},

	// Test kits, level 5.
	{"cluster/clustertest/sim", 5, Kit, 0},

	// Test kits, level 6.
	{"cluster/clustertest", 6, Kit, 0},
}
