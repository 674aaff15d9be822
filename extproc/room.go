package extproc

import "github.com/grapevine-epp/grapevine/extproc/internal/wire"

// Default header limits of Envoy. It checks them again after a mutation and responds 500 if they
// are exceeded, regardless of failure_mode_allow. Proxies do not announce their limits. A request
// with more headers shows that its limit is higher; the next multiple is assumed.
const (
	headersLimit = 100
	bytesLimit   = 60 << 10
	// ownHeaders is the number of headers, including pseudo headers, that a proxy adds after
	// checking the client's.
	ownHeaders = 10
)

// room returns how much a mutation may add to the request if it removes the given number of
// headers.
func (v headerView) room(removed int) wire.Room {
	n, size := len(v.list), 0
	for i := range v.list {
		size += len(v.list[i].Name) + len(v.list[i].Value)
	}
	headers := max((n-ownHeaders+headersLimit-1)/headersLimit, 1) * headersLimit
	bytes := max((size+bytesLimit-1)/bytesLimit, 1) * bytesLimit
	return wire.Room{Headers: headers - n + removed, Bytes: bytes - size}
}
