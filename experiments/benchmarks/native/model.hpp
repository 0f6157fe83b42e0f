// A robot as Pinocchio's model, from the numbers that `native_pinocchio.py` writes.
#pragma once
#include <fstream>
#include <stdexcept>
#include <string>

#include "pinocchio/multibody.hpp"
#include "pinocchio/multibody/joint.hpp"

inline pinocchio::Model read_model(const char * path)
{
  std::ifstream file(path);
  if (!file) throw std::runtime_error("no model");
  pinocchio::Model model;
  int joints;
  file >> joints;
  for (int k = 1; k <= joints; ++k)
  {
    int parent;
    std::string kind;
    Eigen::Matrix3d R, I;
    Eigen::Vector3d p, lever;
    double mass;
    file >> parent >> kind;
    for (int i = 0; i < 9; ++i) file >> R(i / 3, i % 3);
    for (int i = 0; i < 3; ++i) file >> p(i);
    file >> mass;
    for (int i = 0; i < 3; ++i) file >> lever(i);
    for (int i = 0; i < 9; ++i) file >> I(i / 3, i % 3);
    const pinocchio::SE3 at(R, p);
    const std::string name = "j" + std::to_string(k);
    if (kind == "JointModelRX") model.addJoint(parent, pinocchio::JointModelRX(), at, name);
    else if (kind == "JointModelRY") model.addJoint(parent, pinocchio::JointModelRY(), at, name);
    else if (kind == "JointModelRZ") model.addJoint(parent, pinocchio::JointModelRZ(), at, name);
    else if (kind == "JointModelFreeFlyer") model.addJoint(parent, pinocchio::JointModelFreeFlyer(), at, name);
    else throw std::runtime_error("a joint of kind " + kind);
    model.appendBodyToJoint(k, pinocchio::Inertia(mass, lever, I), pinocchio::SE3::Identity());
  }
  return model;
}
