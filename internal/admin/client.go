package admin

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
)

// ErrAddress is wrapped when an address cannot be one.
var ErrAddress = errors.New("admin: no address")

// maxAnswer bounds what is quoted of a refusal.
const maxAnswer = 4 << 10

// Client asks the administration port of a replica, by its host:port.
type Client string

// Do asks for a path with its query. The caller closes the answer's body; any
// status but 200 is an error, which quotes the answer.
func (c Client) Do(ctx context.Context, method, path string, h http.Header, body io.Reader) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, method, "http://"+string(c)+path, body)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrAddress, err)
	}
	if h != nil {
		req.Header = h
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, fmt.Errorf("no replica answers at %s: %w", c, err)
	}
	if resp.StatusCode != http.StatusOK {
		b, _ := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
		return nil, errors.Join(fmt.Errorf("%s: %s: %s", c, resp.Status, bytes.TrimSpace(b)), resp.Body.Close())
	}
	return resp, nil
}

// Get reads a JSON page.
func (c Client) Get(ctx context.Context, path string, into any) error {
	resp, err := c.Do(ctx, http.MethodGet, path, nil, nil)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	return json.NewDecoder(resp.Body).Decode(into)
}
