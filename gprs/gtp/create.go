// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package gtp

import "net/netip"

// CreateRequest asks for a context (TS 29.060 section 7.3.1, TS 09.60 section 7.5.1).
//
// Version 0 has flow labels where fields are named TEID. It has no element for IMSI and
// NSAPI, which are in the header's TID, and none of the fields after QoS.
//
// With LinkedNSAPI it asks for a secondary context of the primary one that the header's
// TEID belongs to.
type CreateRequest struct {
	IMSI          Optional[IMSI]
	RAI           Optional[RAI]
	Recovery      Optional[uint8]
	SelectionMode Optional[SelectionMode]
	TEIDData      uint32
	TEIDControl   Optional[uint32]
	NSAPI         uint8
	LinkedNSAPI   Optional[uint8]

	ChargingCharacteristics   Optional[uint16]
	TraceReference, TraceType Optional[uint16]

	EndUserAddress              Optional[EndUserAddress]
	APN                         Optional[APN]
	PCO                         Optional[PCO]
	AddressControl, AddressUser netip.Addr
	MSISDN                      Optional[MSISDN]
	QoS                         QoS

	TFT                Optional[[]byte] // see ParseTFT
	TriggerID          Optional[[]byte]
	OMCIdentity        Optional[[]byte]
	CommonFlags        Optional[CommonFlags]
	APNRestriction     Optional[uint8]
	RATType            Optional[RATType]
	Location           Optional[Location]
	TimeZone           Optional[TimeZone]
	IMEI               Optional[IMEI]
	CAMEL              Optional[[]byte]
	AdditionalTrace    Optional[[]byte]
	CorrelationID      Optional[uint8]
	EvolvedARP         Optional[EvolvedARP]
	ExtendedFlags      Optional[uint8]
	UserCSG            Optional[[]byte]
	AMBR               Optional[AMBR]
	SignallingPriority Optional[uint8]
	OperatorSelection  Optional[uint8]
	MappedUEUsageType  Optional[uint16]
	UserPlaneSelection Optional[uint8]
	Private            Optional[PrivateExtension]
}

// Type returns [TypeCreateRequest].
func (*CreateRequest) Type() MessageType { return TypeCreateRequest }

func (m *CreateRequest) walk(w *walk) {
	if w.version == V0 {
		m.walkV0(w)
		return
	}
	element(w, ElementIMSI, conditional, &m.IMSI, imsi)
	element(w, ElementRAI, optional, &m.RAI, routeingArea)
	element(w, ElementRecovery, optional, &m.Recovery, octet)
	element(w, ElementSelectionMode, conditional, &m.SelectionMode, selectionMode)
	value(w, ElementTEIDData, &m.TEIDData, uint32s)
	element(w, ElementTEIDControl, conditional, &m.TEIDControl, uint32s)
	value(w, ElementNSAPI, &m.NSAPI, nsapi)
	element(w, ElementNSAPI, conditional, &m.LinkedNSAPI, nsapi)
	element(w, ElementChargingCharacteristics, conditional, &m.ChargingCharacteristics, uint16s)
	element(w, ElementTraceReference, optional, &m.TraceReference, uint16s)
	element(w, ElementTraceType, optional, &m.TraceType, uint16s)
	element(w, ElementEndUserAddress, conditional, &m.EndUserAddress, endUserAddress)
	element(w, ElementAPN, conditional, &m.APN, apn)
	element(w, ElementPCO, optional, &m.PCO, pco)
	value(w, ElementGSNAddress, &m.AddressControl, address)
	value(w, ElementGSNAddress, &m.AddressUser, address)
	element(w, ElementMSISDN, optional, &m.MSISDN, msisdn)
	qosElement, qos := qosFormat(V1)
	value(w, qosElement, &m.QoS, qos)
	m.walkLater(w)
	m.conditions(w)
}

// walkLater goes over the elements of release 99 and later.
func (m *CreateRequest) walkLater(w *walk) {
	element(w, ElementTFT, conditional, &m.TFT, octets)
	element(w, ElementTriggerID, optional, &m.TriggerID, octets)
	element(w, ElementOMCIdentity, optional, &m.OMCIdentity, octets)
	element(w, ElementCommonFlags, optional, &m.CommonFlags, commonFlags)
	element(w, ElementAPNRestriction, optional, &m.APNRestriction, octet)
	element(w, ElementRATType, optional, &m.RATType, rat)
	element(w, ElementLocation, optional, &m.Location, location)
	element(w, ElementTimeZone, optional, &m.TimeZone, timeZone)
	element(w, ElementIMEI, optional, &m.IMEI, imei)
	element(w, ElementCAMELContainer, optional, &m.CAMEL, octets)
	element(w, ElementAdditionalTrace, optional, &m.AdditionalTrace, octets)
	element(w, ElementCorrelationID, optional, &m.CorrelationID, octet)
	element(w, ElementEvolvedARP, optional, &m.EvolvedARP, evolvedARP)
	element(w, ElementExtendedFlags, optional, &m.ExtendedFlags, octet)
	element(w, ElementUserCSG, optional, &m.UserCSG, octets)
	element(w, ElementAMBR, optional, &m.AMBR, ambr)
	element(w, ElementSignallingPriority, optional, &m.SignallingPriority, octet)
	element(w, ElementOperatorSelection, optional, &m.OperatorSelection, octet)
	element(w, ElementMappedUEUsageType, optional, &m.MappedUEUsageType, uint16s)
	element(w, ElementUserPlaneSelection, optional, &m.UserPlaneSelection, octet)
	element(w, ElementPrivateExtension, optional, &m.Private, privateExtension)
}

// conditions checks what a primary context needs. A missing APN has a cause of its own
// and is for the GGSN to judge; a terminal without a card has no IMSI but an IMEI.
func (m *CreateRequest) conditions(w *walk) {
	primary := !m.LinkedNSAPI.Present
	w.require(primary && !m.IMEI.Present, m.IMSI.Present, ElementIMSI)
	w.require(primary, m.TEIDControl.Present, ElementTEIDControl)
	w.require(primary, m.EndUserAddress.Present, ElementEndUserAddress)
}

func (m *CreateRequest) walkV0(w *walk) {
	if !w.writing {
		*m = CreateRequest{}
	}
	qosElement, qos := qosFormat(V0)
	value(w, qosElement, &m.QoS, qos)
	element(w, ElementRecovery, optional, &m.Recovery, octet)
	element(w, ElementSelectionMode, mandatory, &m.SelectionMode, selectionMode)
	value(w, ElementTEIDData, &m.TEIDData, tunnel(V0))
	element(w, ElementTEIDControl, mandatory, &m.TEIDControl, tunnel(V0))
	element(w, ElementEndUserAddress, mandatory, &m.EndUserAddress, endUserAddress)
	element(w, ElementAPN, mandatory, &m.APN, apn)
	element(w, ElementPCO, optional, &m.PCO, pco)
	value(w, ElementGSNAddress, &m.AddressControl, address)
	value(w, ElementGSNAddress, &m.AddressUser, address)
	element(w, ElementMSISDN, mandatory, &m.MSISDN, msisdn)
	element(w, ElementPrivateExtension, optional, &m.Private, privateExtension)
}

// CreateResponse answers a [CreateRequest] (TS 29.060 section 7.3.2, TS 09.60 section
// 7.5.2). What a context needs is there if the cause accepts. Version 0 has none of the
// fields that are marked, and flow labels where they are named TEID.
type CreateResponse struct {
	Cause                       Cause
	Reordering                  Optional[bool]
	Recovery                    Optional[uint8]
	TEIDData, TEIDControl       Optional[uint32]
	NSAPI                       Optional[uint8] // version 1
	ChargingID                  Optional[uint32]
	EndUserAddress              Optional[EndUserAddress]
	PCO                         Optional[PCO]
	AddressControl, AddressUser Optional[netip.Addr]
	QoS                         Optional[QoS]
	ChargingGateway             Optional[netip.Addr]
	Private                     Optional[PrivateExtension]

	// Version 1.
	AlternativeControl, AlternativeUser Optional[netip.Addr] // of the other family
	AlternativeChargingGateway          Optional[netip.Addr]
	CommonFlags                         Optional[CommonFlags]
	APNRestriction                      Optional[uint8]
	InfoChangeAction                    Optional[InfoChangeAction]
	BearerControlMode                   Optional[BearerControlMode]
	EvolvedARP                          Optional[EvolvedARP]
	ExtendedFlags                       Optional[uint8]
	CSGReporting                        Optional[uint8]
	AMBR                                Optional[AMBR]
	BackOffTime                         Optional[uint8]
	ExtendedFlagsII                     Optional[uint8]
}

// Type returns [TypeCreateResponse].
func (*CreateResponse) Type() MessageType { return TypeCreateResponse }

func (m *CreateResponse) walk(w *walk) {
	value(w, ElementCause, &m.Cause, cause)
	accepted := when(m.Cause.Accepted())
	qosElement, qos := qosFormat(w.version)
	if w.version == V0 {
		if !w.writing {
			*m = CreateResponse{Cause: m.Cause}
		}
		element(w, qosElement, accepted, &m.QoS, qos)
	}
	element(w, ElementReordering, accepted, &m.Reordering, flag)
	element(w, ElementRecovery, optional, &m.Recovery, octet)
	element(w, ElementTEIDData, accepted, &m.TEIDData, tunnel(w.version))
	element(w, ElementTEIDControl, conditional, &m.TEIDControl, tunnel(w.version))
	if w.version == V1 {
		element(w, ElementNSAPI, optional, &m.NSAPI, nsapi)
	}
	element(w, ElementChargingID, accepted, &m.ChargingID, uint32s)
	// A secondary context has the address of its primary one.
	element(w, ElementEndUserAddress, conditional, &m.EndUserAddress, endUserAddress)
	element(w, ElementPCO, optional, &m.PCO, pco)
	element(w, ElementGSNAddress, accepted, &m.AddressControl, address)
	element(w, ElementGSNAddress, accepted, &m.AddressUser, address)
	if w.version == V1 {
		element(w, ElementGSNAddress, optional, &m.AlternativeControl, address)
		element(w, ElementGSNAddress, optional, &m.AlternativeUser, address)
		element(w, qosElement, accepted, &m.QoS, qos)
		m.walkLater(w)
	}
	element(w, ElementChargingGateway, optional, &m.ChargingGateway, address)
	if w.version == V1 {
		element(w, ElementChargingGateway, optional, &m.AlternativeChargingGateway, address)
	}
	element(w, ElementPrivateExtension, optional, &m.Private, privateExtension)
}

// walkLater goes over the elements of release 6 and later.
func (m *CreateResponse) walkLater(w *walk) {
	element(w, ElementCommonFlags, optional, &m.CommonFlags, commonFlags)
	element(w, ElementAPNRestriction, optional, &m.APNRestriction, octet)
	element(w, ElementInfoChangeAction, optional, &m.InfoChangeAction, infoChangeAction)
	element(w, ElementBearerControlMode, optional, &m.BearerControlMode, bearerControlMode)
	element(w, ElementEvolvedARP, optional, &m.EvolvedARP, evolvedARP)
	element(w, ElementExtendedFlags, optional, &m.ExtendedFlags, octet)
	element(w, ElementCSGReporting, optional, &m.CSGReporting, octet)
	element(w, ElementAMBR, optional, &m.AMBR, ambr)
	element(w, ElementBackOffTime, optional, &m.BackOffTime, octet)
	element(w, ElementExtendedFlagsII, optional, &m.ExtendedFlagsII, octet)
}
