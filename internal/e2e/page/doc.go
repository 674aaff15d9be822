// Package page looks at the status page in a real browser, with faults injected into engines, and makes
// the screenshots of the documentation. See `make test-page`.
package page
