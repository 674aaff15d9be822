package budget

import (
	"strconv"
	"unicode/utf8"

	"github.com/cespare/xxhash/v2"
)

// MaxName is the length in bytes from which names are cut where they are kept or
// shown.
const MaxName = 256

// ShortName returns a name as it may be kept in records and labels: as it is, or
// cut to MaxName bytes, of which the last are a hash of the whole, when it is
// longer. The result of a cut shares no memory with the name.
func ShortName(name string) string {
	if len(name) <= MaxName {
		return name
	}
	sum := "#" + strconv.FormatUint(xxhash.Sum64String(name), 16)
	at := MaxName - len(sum)
	for at > 0 && !utf8.RuneStart(name[at]) {
		at--
	}
	return name[:at] + sum
}
