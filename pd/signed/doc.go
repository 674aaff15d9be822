// Package signed signs and verifies the addresses that a picker has proxies beside engines
// call. The picker holds a private key; the proxies hold its public half, and call nobody
// whose address was not signed a short time ago.
package signed
