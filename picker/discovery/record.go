package discovery

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"time"
)

// Record is the last result of a source, as replicas store it and send it to each other. A replica
// whose source cannot be read uses it.
type Record struct {
	From  string // Status.From of the source
	Read  time.Time
	Found Found
}

// recordFormat identifies the encoding. Fields may be added to it; a changed meaning needs another
// number.
const recordFormat = 1

// maxRecordEndpoints bounds the endpoints of a decoded record.
const maxRecordEndpoints = 50_000

var errRecord = errors.New("discovery: invalid record of endpoints")

// encodedRecord is the JSON form of a Record. Its field names equal the Go types' names.
type encodedRecord struct {
	Format int
	Record
}

// Encode returns r as JSON. Equal records have equal encodings.
func (r *Record) Encode() ([]byte, error) { return json.Marshal(encodedRecord{recordFormat, *r}) }

// DecodeRecord decodes and validates a record. Unknown fields are ignored.
func DecodeRecord(b []byte) (*Record, error) {
	var e encodedRecord
	if err := json.Unmarshal(b, &e); err != nil {
		return nil, fmt.Errorf("%w: %w", errRecord, err)
	}
	switch {
	case e.Format != recordFormat:
		return nil, fmt.Errorf("%w: format %d, want %d", errRecord, e.Format, recordFormat)
	case e.From == "":
		return nil, fmt.Errorf("%w: no source", errRecord)
	case len(e.Found.Specs) > maxRecordEndpoints:
		return nil, fmt.Errorf("%w: %d endpoints, want at most %d", errRecord, len(e.Found.Specs), maxRecordEndpoints)
	}
	seen := make(map[netip.AddrPort]bool, len(e.Found.Specs))
	for i := range e.Found.Specs {
		at := e.Found.Specs[i].Addr
		if ip := at.Addr(); !ip.IsValid() || at.Port() == 0 || ip.IsUnspecified() || ip.IsMulticast() || ip.IsLinkLocalUnicast() || seen[at] {
			return nil, fmt.Errorf("%w: address %q of endpoint %q", errRecord, at, e.Found.Specs[i].Name)
		}
		seen[at] = true
	}
	return &e.Record, nil
}
