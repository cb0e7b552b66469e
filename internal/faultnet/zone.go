package faultnet

// zone is a set of addresses that can also be "all but these".
type zone struct {
	all    bool
	except map[string]bool // addresses for which all is not the answer
}

func (z *zone) has(addr string) bool { return z.all != z.except[addr] }

func (z *zone) set(addr string, in bool) {
	if z.has(addr) == in {
		return
	}
	if z.except == nil {
		z.except = make(map[string]bool)
	}
	z.except[addr] = in != z.all
}

func (z *zone) setAll(in bool) { *z = zone{all: in} }

// Down refuses dials to addr and closes the live connections to it, with what
// is held on them, until Up.
func (n *Net) Down(addr string) {
	n.mu.Lock()
	n.down.set(addr, true)
	hit := n.connsLocked(n.down.has)
	n.mu.Unlock()
	severAll(hit)
}

// Up ends Down for addr, also after DownAll.
func (n *Net) Up(addr string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.down.set(addr, false)
}

// DownAll is Down for every address, those not yet dialled included.
func (n *Net) DownAll() {
	n.mu.Lock()
	n.down.setAll(true)
	hit := n.connsLocked(nil)
	n.mu.Unlock()
	severAll(hit)
}

// UpAll ends every Down and DownAll.
func (n *Net) UpAll() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.down.setAll(false)
}

// Blackhole stalls addr until Heal: its connections take bytes and deliver none
// in either direction, and dials hang. At the healing everything arrives that
// its sender still waits for; what a client wrote on a connection that it has
// closed since is lost.
func (n *Net) Blackhole(addr string) { n.stall(func(z *zone) { z.set(addr, true) }) }

// Heal ends Blackhole for addr, also after BlackholeAll.
func (n *Net) Heal(addr string) { n.stall(func(z *zone) { z.set(addr, false) }) }

// BlackholeAll is Blackhole for every address, those not yet dialled included.
func (n *Net) BlackholeAll() { n.stall(func(z *zone) { z.setAll(true) }) }

// HealAll ends every Blackhole and BlackholeAll.
func (n *Net) HealAll() { n.stall(func(z *zone) { z.setAll(false) }) }

func (n *Net) stall(change func(*zone)) {
	n.mu.Lock()
	defer n.mu.Unlock()
	change(&n.stalled)
	close(n.healed) // dials look again
	n.healed = make(chan struct{})
	for _, c := range n.connsLocked(nil) {
		c.setStalled(n.stalled.has(c.addr))
	}
}

func severAll(conns []*conn) {
	for _, c := range conns {
		c.sever()
	}
}
