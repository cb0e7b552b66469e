// Package transport is the machinery behind netclient: the kgo clients that
// requests travel on ("lanes"), coordinator look-ups, broker versions and
// finalized features, topic metadata, and the table that says what each
// broker answer means.
//
// # Lanes
//
// A kgo client writes one request at a time to a broker, whatever connection
// it uses, and a broker answers one connection in order. So requests that end
// transactions travel on coordinator lanes, Produce on produce lanes, and
// look-ups on a lane of their own; none of them waits behind another kind.
// A lane is one kgo client, made at its first use.
//
// # What was sent
//
// A request counts as sent from the moment its AppendTo ran. Until then not
// one byte of it can have left the process, and after that the broker may act
// on it whatever error the caller sees. [Result] keeps the two apart, over all
// attempts of a call.
//
// # Contexts
//
// A context bounds the wait and the retries. It never takes back a request
// that was sent. Produce and Fetch are detached from every context: kgo ends
// the connection of a cancelled one, and with it all requests in flight there.
package transport
