package arch

import "strings"

// row places a package, and those below it that have no row of their own, in
// the import order.
type row struct {
	pkg   string // path within the module
	level int
}

// rows is the import table: a package imports packages of lower levels and
// those of its own row. A package below one that has a row shares that row.
var rows = []row{
	// Knows nothing else of the project.
	{"internal/varint", 0},
	{"indexer", 0},
	{"cluster", 0},
	{"cluster/internal/wire", 0},
	{"cluster/internal/group", 0},
	{"cluster/internal/logs", 0},
	{"cluster/internal/core", 0},
	{"events/zmtp", 0},
	{"deploy", 0},
	{"internal/parts", 0},
	{"internal/budget", 0},
	{"internal/strict", 0},
	{"internal/cli", 0},
	{"internal/arch", 0},
	{"internal/setup", 0},
	{"internal/lab/bench", 0},
	{"picker/health", 0},

	// On top of the index.
	{"internal/prompt", 0},
	{"events", 1},
	{"picker/request", 1},
	{"picker/endpoint", 1},
	{"picker", 1},

	// What choosing needs.
	{"picker/plugin", 2},
	{"picker/plugins", 2},
	{"picker/plugins/saturation", 2},
	{"picker/plugins/settings", 2},
	{"picker/scrape", 2},
	{"picker/discovery", 2},
	{"picker/flow", 2},
	{"pd", 2},
	{"pd/sidecar", 2},

	// What the outside sees.
	{"picker/config", 3},
	{"extproc", 3},
	{"extproc/xds", 3},
	{"cluster/federation", 3},

	// The daemon, and what plays its surroundings.
	{"internal/share", 3},
	{"internal/server", 4},
	{"internal/admin", 4},
	{"internal/lab", 4},
	{"internal/testkit", 4},
	{"internal/e2e", 4},
	{"internal/docs", 4},

	// What the command line does beyond flags.
	{"internal/explain", 5},
	{"internal/lab/record", 5},

	{"cmd/grapevine", 6},
	{"cmd/grapevine-lab", 6},
}

// edges are the imports within one level that the table allows.
var edges = map[[2]string]bool{
	{"internal/server", "internal/admin"}:           true,
	{"extproc/xds", "extproc"}:                      true, // the listener that envoyconf renders
	{"pd", "picker/plugins"}:                        true, // the rows that it adds to the table
	{"pd", "picker/plugin"}:                         true, // the contract of its rows
	{"picker/plugins", "picker/plugin"}:             true,
	{"picker/plugins", "picker/plugins/saturation"}: true,
	{"picker/plugins", "picker/plugins/settings"}:   true,
	{"picker/plugins/saturation", "picker/plugin"}:  true,
	{"picker/plugins/settings", "picker/plugin"}:    true,
	{"picker", "picker/request"}:                    true, // what is placed
	{"picker", "picker/endpoint"}:                   true, // where it is placed

	{"indexer", "internal/varint"}:               true,
	{"cluster/internal/wire", "internal/varint"}: true,

	// The state machine of a group, bottom up, and those who run it.
	{"cluster/internal/group", "cluster/internal/wire"}: true,
	{"cluster/internal/logs", "cluster/internal/wire"}:  true,
	{"cluster/internal/logs", "cluster/internal/group"}: true,
	{"cluster/internal/core", "cluster/internal/wire"}:  true,
	{"cluster/internal/core", "cluster/internal/group"}: true,
	{"cluster/internal/core", "cluster/internal/logs"}:  true,
	{"cluster", "cluster/internal/wire"}:                true,
	{"cluster", "cluster/internal/group"}:               true,
	{"cluster", "cluster/internal/logs"}:                true,
	{"cluster", "cluster/internal/core"}:                true,
}

// pure names the rows that hold no I/O, no goroutine, no log, no clock and no chance.
var pure = map[string]bool{
	"indexer":                true,
	"cluster/internal/wire":  true,
	"cluster/internal/group": true,
	"cluster/internal/logs":  true,
	"cluster/internal/core":  true,
	"picker/health":          true,
}

// locking names the pure rows that are used concurrently and hold locks of their own.
var locking = map[string]bool{"indexer": true, "picker/health": true}

// hot names the rows on the path of a request or an event, where values have
// types and no map holds `any`.
var hot = map[string]bool{
	"indexer":                   true,
	"events":                    true,
	"picker":                    true,
	"picker/request":            true,
	"picker/endpoint":           true,
	"picker/plugins/saturation": true,
	"picker/plugins":            true,
	"pd":                        true,
	"extproc":                   true,
}

// rowOf returns the row of the package at path within the module: its own or
// that of the nearest folder above.
func rowOf(pkg string) (row, bool) {
	for path := pkg; path != ""; {
		for _, r := range rows {
			if r.pkg == path {
				return r, true
			}
		}
		cut := strings.LastIndexByte(path, '/')
		if cut < 0 {
			break
		}
		path = path[:cut]
	}
	return row{}, false
}

// mayImport reports whether the table lets a package of row from import one
// of row to.
func mayImport(from, to row) bool {
	return from == to || to.level < from.level || edges[[2]string{from.pkg, to.pkg}]
}
