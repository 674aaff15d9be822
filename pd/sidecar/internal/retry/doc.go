// Package retry limits retries by the number of requests.
package retry
