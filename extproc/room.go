package extproc

import "github.com/grapevine-epp/grapevine/extproc/internal/wire"

// Limits of an Envoy's headers, by default. It checks them again after a mutation, and answers
// 500 where they are passed, whatever failure_mode_allow says. What a proxy allows is not
// announced: a request that has more headers already shows that its limit is higher, and is
// taken to be the next multiple.
const (
	headersLimit = 100
	bytesLimit   = 60 << 10
	// ownHeaders is how many headers a proxy adds between its own check of what the client
	// sent and the picker, pseudo headers among them.
	ownHeaders = 10
)

// room returns what a mutation may add to the request, of which it removes some headers.
func (v headerView) room(removed int) wire.Room {
	n, size := len(v.list), 0
	for i := range v.list {
		size += len(v.list[i].Name) + len(v.list[i].Value)
	}
	headers := max((n-ownHeaders+headersLimit-1)/headersLimit, 1) * headersLimit
	bytes := max((size+bytesLimit-1)/bytesLimit, 1) * bytesLimit
	return wire.Room{Headers: headers - n + removed, Bytes: bytes - size}
}
