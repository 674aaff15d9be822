package rules

import (
	"strconv"
	"strings"

	"github.com/cespare/xxhash/v2"
)

// Clients choose flow names, and replicas exchange them with every change.
const (
	longestName = 128
	keptOfName  = 96
)

// Name returns the name of a flow ID. A long ID is replaced by its beginning and a hash of the
// whole ID.
func Name(id string) string {
	if len(id) <= longestName {
		return id
	}
	kept := strings.ToValidUTF8(id[:keptOfName], "")
	return kept + "~" + strconv.FormatUint(xxhash.Sum64String(id), 16)
}
