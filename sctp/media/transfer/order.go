// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package transfer

// Order puts data of several streams into the order of their offsets. The zero value begins at offset 0.
type Order struct {
	// Limit bounds octets that wait for others, each piece of them with waitingCost beside; 0 is none that may.
	Limit int

	next    uint64
	waiting map[uint64][]byte
	held    int
}

// waitingCost is what a piece counts that waits, beside its octets: many small ones are not to take more memory than
// large ones.
const waitingCost = 128

// Next is the offset of the first octet that has not come.
func (o *Order) Next() uint64 { return o.next }

// Held is how many octets wait for others.
func (o *Order) Held() int { return o.held }

// Add takes data, and hands on what is in order now. Data that come twice, overlap, or are too many are an error: SCTP
// delivers each message once.
func (o *Order) Add(d *Data, take func([]byte) error) error {
	switch {
	case d.Offset < o.next:
		return fault("offset %d comes twice", d.Offset)
	case d.Offset > o.next:
		return o.keep(d)
	}
	if err := o.pass(d.Media, take); err != nil {
		return err
	}
	for {
		b, there := o.waiting[o.next]
		if !there {
			return nil
		}
		delete(o.waiting, o.next)
		o.held -= len(b)
		if err := o.pass(b, take); err != nil {
			return err
		}
	}
}

func (o *Order) keep(d *Data) error {
	if o.waiting == nil {
		o.waiting = map[uint64][]byte{}
	}
	if _, there := o.waiting[d.Offset]; there {
		return fault("offset %d comes twice", d.Offset)
	}
	if o.held+len(d.Media)+waitingCost*(len(o.waiting)+1) > o.Limit {
		return fault("more than %d octets are ahead of offset %d", o.Limit, o.next)
	}
	o.waiting[d.Offset] = append([]byte(nil), d.Media...)
	o.held += len(d.Media)
	return nil
}

func (o *Order) pass(b []byte, take func([]byte) error) error {
	o.next += uint64(len(b))
	return take(b)
}
