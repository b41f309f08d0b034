//! The protocol engine in virtual time: whole conversations over a modelled link, and single frames made by hand.

mod acks;
mod bad_control;
mod bad_frames;
mod bad_pulls;
mod closing;
mod conversation;
mod data_paths;
mod fault_injection;
mod faults;
mod goodput;
mod immediate_send;
mod incast;
mod large;
mod limits;
mod loss;
mod marks;
mod node;
mod processors;
mod pullers;
mod reconnect;
mod restart;
mod script;
mod unsettled;
mod worked;
mod world;
