package cluster

import (
	"crypto/rand"
	"encoding/binary"
	"encoding/hex"
	"time"

	"github.com/grapevine-epp/grapevine/cluster/internal/core"
	"github.com/grapevine-epp/grapevine/cluster/internal/group"
	"github.com/grapevine-epp/grapevine/cluster/internal/logs"
)

// Types of the state machine for users of a Node and for implementations of Bus, stores and sinks.
// They are declared and documented in internal packages; this is the only list of them.
type (
	Member     = group.Member
	Position   = logs.Position
	Digest     = logs.Digest
	Delta      = logs.Delta
	Role       = logs.Role
	Verdict    = logs.Verdict
	Share      = group.Share
	Phase      = group.Phase
	SourceView = logs.SourceView
	LogStore   = logs.LogStore
	Dump       = logs.Dump
	Stage      = logs.Stage
	GaugeSink  = core.GaugeSink
	FeedSink   = core.FeedSink
	DirectSink = core.DirectSink
	LogOptions = logs.LogOptions
	Tuning     = group.Options
	Envelope   = group.Envelope
	Traffic    = group.Traffic
	Queue      = group.Queue

	ClockDifference = group.ClockDifference
)

// Values of the types above.
const (
	RoleNone    = logs.RoleNone
	RoleStandby = logs.RoleStandby
	RoleReader  = logs.RoleReader

	Applied = logs.Applied
	Already = logs.Already
	Gap     = logs.Gap
	Stale   = logs.Stale
	Unknown = logs.Unknown
	Broken  = logs.Broken

	ShareAuto        = group.ShareAuto
	ShareMesh        = group.ShareMesh
	SharePartitioned = group.SharePartitioned

	Settling = group.Settling
	Settled  = group.Settled
	Degraded = group.Degraded
)

// NewMember returns the identity of this process: a unique ID and a stable name (a host or pod
// name), so that a restart does not move ownership.
func NewMember(name, version string) Member {
	var b [8]byte
	_, _ = rand.Read(b[:]) // never fails, according to its documentation
	return Member{
		ID:   name + "-" + hex.EncodeToString(b[:4]),
		Name: name, Version: version,
		Boot: uint64(time.Now().UnixNano()) ^ binary.LittleEndian.Uint64(b[:])<<1 | 1,
	}
}

// ParseShare parses the value of a Share option: auto, mesh or partitioned.
func ParseShare(s string) (Share, bool) { return group.ParseShare(s) }

// Errors for a LogStore and its dumps to return.
var (
	ErrUnsure   = logs.ErrUnsure
	ErrTooLarge = logs.ErrTooLarge
)
