package served

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"time"

	"github.com/grapevine-epp/grapevine/indexer/block"
	"github.com/grapevine-epp/grapevine/picker/endpoint"
)

// Limits of reading engine versions.
const (
	maxVersionPage = 256 << 10       // bytes
	maxVersion     = 128             // bytes per version
	maxVersions    = 8               // remembered per endpoint
	versionPause   = 5 * time.Minute // interval if the page is expensive for the engine or missing
)

var errNoVersion = errors.New("served: the response has no version")

// versions are the versions that an endpoint's engine has reported.
type versions struct {
	now    string
	at     time.Time // last reported
	before []string
	back   int       // number of times an older one was reported again
	next   time.Time // earliest next request
	asked  bool      // a request is in progress
}

// observe records a reported version and returns whether it indicates a different engine process.
// Several engines with different versions may share one address, so alternating versions count
// once.
func (v *versions) observe(version string, at time.Time) (another bool) {
	was := v.now
	v.now, v.at = version, at
	if was == "" || was == version {
		return false
	}
	if slices.Contains(v.before, version) {
		v.back++
	} else if len(v.before) == maxVersions {
		v.before = slices.Delete(v.before, 0, 1)
	}
	if !slices.Contains(v.before, was) {
		v.before = append(v.before, was)
	}
	return v.back <= 1
}

// Version returns the version reported by an endpoint's engine, or "".
func (r *Reader) Version(id block.EndpointID) string {
	r.mu.Lock()
	defer r.mu.Unlock()
	if e := r.engines[id]; e != nil {
		return e.versions.now
	}
	return ""
}

// renew requests an engine's version. If it changed, the engine is a new process, and the pool is
// updated if it has not been updated before.
func (r *Reader) renew(id block.EndpointID, e *engine) {
	now := r.opts.Now()
	ep := r.opts.Pool.Snapshot().ByID(int(id))
	r.mu.Lock()
	if ep == nil || e.versions.asked || now.Before(e.versions.next) {
		r.mu.Unlock()
		return
	}
	e.versions.asked = true
	r.mu.Unlock()

	pause := time.Duration(0)
	path, costly := kindOf(ep).VersionPage()
	if costly {
		pause = versionPause
	}
	version, err := r.askVersion(e.address, path)
	if err != nil {
		pause = versionPause
		r.opts.Log.Debug("version of an engine not read", "endpoint", e.address, "error", err)
	}

	r.mu.Lock()
	was, last := e.versions.now, e.versions.at
	e.versions.asked, e.versions.next = false, now.Add(pause)
	another := err == nil && e.versions.observe(version, now)
	r.mu.Unlock()
	if ep = r.opts.Pool.Snapshot().ByID(int(id)); another && ep != nil && !ep.Began().After(last) {
		r.opts.Log.Info("engine version changed, treating it as a new engine", "endpoint", e.address, "was", was, "version", version)
		r.opts.Pool.Renew(ep)
	}
}

func kindOf(ep *endpoint.Endpoint) endpoint.EngineType {
	if ep.Engine != endpoint.EngineUnknown {
		return ep.Engine
	}
	return ep.Gauges().Engine
}

func (r *Reader) askVersion(address, path string) (string, error) {
	select {
	case r.slots <- struct{}{}:
		defer func() { <-r.slots }()
	case <-r.ctx.Done():
		return "", r.ctx.Err()
	}
	data, err := r.get(address, path, maxVersionPage)
	if err != nil {
		return "", err
	}
	return decodeVersion(data)
}

// decodeVersion decodes the version in a response to GET /version or /server_info.
func decodeVersion(data []byte) (string, error) {
	var v struct {
		Version string `json:"version"`
	}
	if err := json.Unmarshal(data, &v); err != nil || v.Version == "" || len(v.Version) > maxVersion {
		return "", errNoVersion
	}
	return v.Version, nil
}

// get reads a page of an engine.
func (r *Reader) get(address, path string, most int64) ([]byte, error) {
	ctx, cancel := context.WithTimeout(r.ctx, r.opts.Timeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, r.opts.Scheme+"://"+address+path, nil)
	if err != nil {
		return nil, err
	}
	answer, err := r.opts.Client.Do(req)
	if err != nil {
		return nil, err
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("served: status %d", answer.StatusCode)
	}
	data, err := io.ReadAll(io.LimitReader(answer.Body, most+1))
	if err == nil && int64(len(data)) > most {
		err = fmt.Errorf("served: response exceeds %d bytes", most)
	}
	return data, err
}
