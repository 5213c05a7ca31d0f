# forward_medium_sm90's compiled kernels: one small translation unit for each row of kConfigs
# (config.hpp) and type. instances.cpp makes the list of them a table.
set(medium_configs 2)
set(medium_generated ${CMAKE_CURRENT_BINARY_DIR}/generated/forward_medium_sm90)
set(medium_sources "")
set(medium_declarations "")
set(medium_entries "")
math(EXPR medium_last_config "${medium_configs} - 1")
foreach(INSTANCE_ELEMENT Fp16 Bf16)
  foreach(INSTANCE_CONFIG RANGE ${medium_last_config})
    string(TOLOWER "medium_${INSTANCE_ELEMENT}_config${INSTANCE_CONFIG}" INSTANCE_NAME)
    set(source ${medium_generated}/${INSTANCE_NAME}.cu)
    configure_file(forward_medium_sm90/instance.cu.in ${source} @ONLY)
    list(APPEND medium_sources ${source})
    string(APPEND medium_declarations "InstanceEntry ${INSTANCE_NAME}(bool whole);\n")
    string(APPEND medium_entries "    ${INSTANCE_NAME}(false), ${INSTANCE_NAME}(true),\n")
  endforeach()
endforeach()
configure_file(forward_medium_sm90/instance_list.hpp.in ${medium_generated}/instance_list.hpp @ONLY)

flashcore_cuda_sources(TARGETS 90a SOURCES ${medium_sources})
target_sources(flashcore_objects PRIVATE forward_medium_sm90/instances.cpp)
set_source_files_properties(forward_medium_sm90/instances.cpp TARGET_DIRECTORY flashcore_objects
  PROPERTIES INCLUDE_DIRECTORIES ${medium_generated})
