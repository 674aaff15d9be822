package rules

import (
	"strconv"
	"strings"

	"github.com/cespare/xxhash/v2"
)

// Names of flows are told to the other replicas with every change, and come from clients.
const (
	longestName = 128
	keptOfName  = 96
)

// Name returns how the flow of an id is called: an id that is too long to be told by its
// beginning and a hash of all of it.
func Name(id string) string {
	if len(id) <= longestName {
		return id
	}
	kept := strings.ToValidUTF8(id[:keptOfName], "")
	return kept + "~" + strconv.FormatUint(xxhash.Sum64String(id), 16)
}
