package discovery

import (
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"net"
	"net/netip"
	"time"

	"github.com/grapevine-epp/grapevine/internal/monotime"
)

// Defaults of FileOptions.
const (
	defaultPoll           = 10 * time.Second
	defaultSettle         = 100 * time.Millisecond
	defaultResolveEvery   = 30 * time.Second
	defaultResolveTimeout = 5 * time.Second
	maxLookups            = 16 // host names resolved concurrently
)

// Resolver resolves host names. *net.Resolver implements it.
type Resolver interface {
	LookupNetIP(ctx context.Context, network, host string) ([]netip.Addr, error)
}

// FileOptions configure a File. Path and Sink.Update are required.
type FileOptions struct {
	Path string
	Sink Sink // gets specs in the file's order, a name's addresses ascending

	Poll           time.Duration // interval of reading without a change notification; 0 means 10 s
	Settle         time.Duration // quiet time after a change before reading; 0 means 100 ms
	ResolveEvery   time.Duration // interval of resolving host names; 0 means 30 s
	ResolveTimeout time.Duration // for one round; 0 means 5 s
	Resolver       Resolver      // nil means the system resolver
	NoWatch        bool          // poll only, for file systems without change notifications

	Now func() time.Time // nil means monotime.Now
}

var (
	errNoPath = errors.New("discovery: FileOptions.Path is required")
	errNoSink = errors.New("discovery: FileOptions.Sink.Update is required")
)

func (o *FileOptions) complete() error {
	if o.Path == "" {
		return errNoPath
	}
	if o.Sink.Update == nil {
		return errNoSink
	}
	set := func(d *time.Duration, v time.Duration) {
		if *d <= 0 {
			*d = v
		}
	}
	set(&o.Poll, defaultPoll)
	set(&o.Settle, defaultSettle)
	set(&o.ResolveEvery, defaultResolveEvery)
	set(&o.ResolveTimeout, defaultResolveTimeout)
	if o.Resolver == nil {
		o.Resolver = net.DefaultResolver
	}
	if o.Sink.Log == nil {
		o.Sink.Log = slog.New(slog.DiscardHandler)
	}
	if o.Now == nil {
		o.Now = monotime.Now
	}
	return nil
}

// cause returns a file system error without the path, which the problem already has.
func cause(err error) string {
	var pathErr *fs.PathError
	if errors.As(err, &pathErr) {
		return pathErr.Err.Error()
	}
	return err.Error()
}
