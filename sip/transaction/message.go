// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package transaction

import (
	"net/netip"
	"strconv"
	"strings"

	"github.com/emiago/sipgo/sip"
)

// Cookie begins a branch of RFC 3261 (section 8.1.1.7).
const Cookie = "z9hG4bK"

// Branch is that of a request's top Via, "" if it has none.
func Branch(req *sip.Request) string {
	if v := req.Via(); v != nil {
		return branchOf(v)
	}
	return ""
}

func branchOf(v *sip.ViaHeader) string { return v.Params.GetOr("branch", "") }

// keyOf finds the transaction of a request by section 17.2.3. Those of RFC 2543, which have no
// branch that could tell them apart, are known by all that makes them what they are.
func keyOf(req *sip.Request) serverKey {
	method := req.Method
	if method == sip.ACK {
		method = sip.INVITE
	}
	v := req.Via()
	key := serverKey{sentBy: strings.ToLower(v.Host) + ":" + strconv.Itoa(v.Port), method: method}
	key.branch = branchOf(v)
	if !strings.HasPrefix(key.branch, Cookie) {
		from, _ := req.From().Params.Get("tag")
		key.branch = strings.Join([]string{req.Recipient.String(), from, string(*req.CallID()), strconv.Itoa(int(req.CSeq().SeqNo)), v.Value()}, "\x00")
	}
	return key
}

// complete adds to the top Via where the request came from, and returns the hop by which
// responses go (sections 18.2.1 and 18.2.2, RFC 3581 section 4). IPv6 literals stand in
// received without brackets, as its grammar has them.
func complete(req *sip.Request, hop Hop) Hop {
	v := req.Via()
	source := hop.Remote.Addr().Unmap()
	_, symmetric := v.Params.Get("rport")
	if symmetric {
		v.Params.Add("rport", strconv.Itoa(int(hop.Remote.Port())))
	}
	if named, err := netip.ParseAddr(strings.Trim(v.Host, "[]")); symmetric || err != nil || named != source {
		v.Params.Add("received", source.String())
	}
	if !symmetric && !hop.Transport.Reliable() {
		port := v.Port
		if port <= 0 || port > 0xffff {
			port = 5060
		}
		hop.Remote = netip.AddrPortFrom(hop.Remote.Addr(), uint16(port))
	}
	return hop
}

// Response makes a response of what section 8.2.6 has it copy from the request; tag is for
// its To, unless that has one or the response is a 100.
func Response(req *sip.Request, status int, reason, tag string) *sip.Response {
	res := sip.NewResponse(status, reason)
	sip.CopyHeaders("Via", req, res)
	res.AppendHeader(sip.HeaderClone(req.From()))
	to := sip.HeaderClone(req.To()).(*sip.ToHeader)
	if !to.Params.Has("tag") && status != sip.StatusTrying && tag != "" {
		to.Params.Add("tag", tag)
	}
	res.AppendHeader(to)
	res.AppendHeader(sip.HeaderClone(req.CallID()))
	res.AppendHeader(sip.HeaderClone(req.CSeq()))
	if status == sip.StatusTrying {
		sip.CopyHeaders("Timestamp", req, res)
	}
	res.SetBody(nil)
	return res
}

// CancelOf makes the CANCEL of a request (section 9.1), for one whose transaction was ended
// since its address is gone. It is known by its branch, wherever it comes from.
func CancelOf(req *sip.Request) *sip.Request { return follow(req, sip.CANCEL, req.To()) }

// follow makes the ACK or CANCEL of a request, which share its transaction: the top Via alone,
// the same Request-URI and Route (sections 9.1 and 17.1.1.3).
func follow(of *sip.Request, method sip.RequestMethod, to *sip.ToHeader) *sip.Request {
	req := sip.NewRequest(method, *of.Recipient.Clone())
	req.AppendHeader(of.Via().Clone())
	sip.CopyHeaders("Route", of, req)
	forwards := sip.MaxForwardsHeader(70)
	req.AppendHeader(&forwards)
	req.AppendHeader(sip.HeaderClone(of.From()))
	req.AppendHeader(sip.HeaderClone(to))
	req.AppendHeader(sip.HeaderClone(of.CallID()))
	req.AppendHeader(&sip.CSeqHeader{SeqNo: of.CSeq().SeqNo, MethodName: method})
	req.SetBody(nil)
	return req
}
