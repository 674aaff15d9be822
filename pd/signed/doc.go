// Package signed signs and verifies the addresses that a picker gives to the proxies next to
// engines. The picker holds a private key. The proxies hold the public key and connect only to
// recently signed addresses.
package signed
