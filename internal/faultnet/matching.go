package faultnet

import "slices"

// hit is a request met by a fault.
type hit struct {
	*Fault
	inj  *Injection
	hold *hold // nil if nothing is to be held
}

// meetsLocked tells whether the fault is meant for such a request, Match aside.
func (i *Injection) meetsLocked(key int16, addr string, node int32) bool {
	f := &i.fault
	return !i.gone &&
		(f.Key == Any || f.Key == key) &&
		(f.Node == Any || f.Node == node) &&
		(f.Addr == "" || f.Addr == addr)
}

// candidatesLocked returns the faults that may meet such a request.
func (n *Net) candidatesLocked(key int16, addr string, node int32) []*Injection {
	var found []*Injection
	for _, inj := range n.faults {
		if inj.meetsLocked(key, addr, node) {
			found = append(found, inj)
		}
	}
	return found
}

// pick returns the first of the candidates that takes the request.
func (n *Net) pick(candidates []*Injection, req Request) (hit, bool) {
	for _, inj := range candidates {
		// Match is the test's code and may call back: no lock here.
		if inj.fault.Match != nil && !inj.fault.Match(req) {
			continue
		}
		n.mu.Lock()
		h, ok := n.takeLocked(inj)
		n.mu.Unlock()
		if ok {
			return h, true
		}
	}
	return hit{}, false
}

// takeLocked counts one match and tells whether the fault acts on it.
func (n *Net) takeLocked(inj *Injection) (hit, bool) {
	if inj.gone {
		return hit{}, false
	}
	if inj.skipped < inj.fault.Skip {
		inj.skipped++
		return hit{}, false
	}
	inj.hits++
	if limit := inj.fault.limit(); limit >= 0 && inj.hits >= limit {
		n.retireLocked(inj)
	}
	h := hit{Fault: &inj.fault, inj: inj}
	if inj.fault.holds() {
		h.hold = &hold{release: inj.release, delay: inj.fault.Delay}
	}
	n.changedLocked()
	return h, true
}

// retireLocked stops the fault from matching. What it holds stays held.
func (n *Net) retireLocked(inj *Injection) {
	inj.gone = true
	n.faults = slices.DeleteFunc(n.faults, func(o *Injection) bool { return o == inj })
}

// oweDial makes the next dial to addr fail on behalf of the fault.
func (n *Net) oweDial(inj *Injection, addr string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if inj.fault.matchesDials() {
		return // it meets the dial itself
	}
	if inj.owed == nil {
		inj.owed = make(map[string]int)
	}
	inj.owed[addr]++
}

func (f *Fault) matchesDials() bool {
	return f.Action == Refuse && f.Key == Any && f.Match == nil
}

// refusesDialLocked tells whether a fault refuses this dial, and counts it.
func (n *Net) refusesDialLocked(addr string) bool {
	for _, inj := range n.injections {
		if inj.owed[addr] > 0 {
			inj.owed[addr]--
			return true
		}
	}
	node := n.nodeLocked(addr)
	for _, inj := range slices.Clone(n.faults) {
		if inj.fault.matchesDials() && inj.meetsLocked(Any, addr, node) {
			if _, ok := n.takeLocked(inj); ok {
				return true
			}
		}
	}
	return false
}
