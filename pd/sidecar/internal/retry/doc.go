// Package retry bounds second tries by the number of requests.
package retry
