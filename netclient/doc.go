// Package netclient is the network side that sessions, producers and
// consumers share: one Client per cluster and set of credentials.
package netclient
