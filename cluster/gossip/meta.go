package gossip

import (
	"encoding/binary"
	"errors"

	"github.com/grapevine-epp/grapevine/cluster/internal/stream"
)

// metaVersion is the first byte of a member's metadata. Fields are only added at the end; readers
// ignore bytes after the fields they know.
const metaVersion = 1

// maxMeta is memberlist's limit.
const maxMeta = 512

var errMeta = errors.New("gossip: malformed member metadata")

// meta is a member's metadata, distributed by encrypted gossip.
type meta struct {
	Boot        uint64
	StreamPort  uint16
	StreamHost  string // "" means the host of gossip
	Fingerprint stream.Fingerprint
	Name        string
	Version     string
	Zone        string
}

func (m meta) append(b []byte) []byte {
	b = append(b, metaVersion)
	b = binary.LittleEndian.AppendUint64(b, m.Boot)
	b = binary.LittleEndian.AppendUint16(b, m.StreamPort)
	b = append(b, m.Fingerprint[:]...)
	for _, s := range [...]string{m.StreamHost, m.Name, m.Version, m.Zone} {
		s = s[:min(len(s), 128)]
		b = append(b, byte(len(s)))
		b = append(b, s...)
	}
	return b
}

func parseMeta(b []byte) (m meta, err error) {
	const fixed = 1 + 8 + 2 + len(m.Fingerprint)
	if len(b) < fixed || b[0] == 0 {
		return m, errMeta
	}
	m.Boot = binary.LittleEndian.Uint64(b[1:])
	m.StreamPort = binary.LittleEndian.Uint16(b[9:])
	copy(m.Fingerprint[:], b[11:])
	b = b[fixed:]
	for _, s := range [...]*string{&m.StreamHost, &m.Name, &m.Version} {
		if len(b) == 0 || len(b) < 1+int(b[0]) {
			return m, errMeta
		}
		n := 1 + int(b[0])
		*s, b = string(b[1:n]), b[n:]
	}
	if len(b) > 0 && len(b) >= 1+int(b[0]) { // older members omit it
		m.Zone = string(b[1 : 1+int(b[0])])
	}
	if m.StreamPort == 0 {
		return m, errMeta
	}
	return m, nil
}
